"""The dashboard: one page and its parts, from the package, with nothing from anywhere else.

They hold no data and no secret, so they are served to whoever can connect; the data come from the
API, which asks for its token where there is one.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import HTMLResponse

from dial.errors import IntakeError

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    # Scripts and styles of this service alone, none of them inline, and no frame around the page.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Small, and another version's script on this version's page would be worse than a second.
    "Cache-Control": "no-cache",
}


def page() -> APIRouter:
    """The endpoints; the files are read once."""
    folder = files("dial.service") / "dashboard"
    content = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    index = content.pop("index.html")
    router = APIRouter()

    @router.get("/", response_class=HTMLResponse)
    async def get_dashboard() -> Response:
        """The dashboard, a page for people."""
        return HTMLResponse(index, headers=_HEADERS)

    @router.get(
        "/assets/{name}",
        response_class=Response,
        responses={
            200: {"content": {kind: {"schema": {"type": "string"}} for kind in _TYPES.values()}}
        },
    )
    async def get_asset(name: Annotated[str, Path(max_length=64)]) -> Response:
        """A style, a script or a picture of the dashboard."""
        if name not in content:
            raise IntakeError("not_found", f"no such part of the dashboard: {name[:64]!r}", "name")
        kind = _TYPES[name[name.rindex(".") :]]
        return Response(content[name], media_type=kind, headers=_HEADERS)

    return router
