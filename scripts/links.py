"""Checks every link of the Markdown files: the file is there, and so is its heading.

``python scripts/links.py``; links to other hosts are not followed.  What no page leads to from
the README is said as well: a page that nobody finds is not documentation.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")


def pages() -> list[Path]:
    """Markdown files that are kept, and new ones that could be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (ROOT / line for line in listed.stdout.splitlines())
    return [path for path in paths if path.exists()]


def links(page: Path) -> Iterator[str]:
    """Targets of a page, in code left out."""
    text = _FENCE.sub("", page.read_text())
    # A link's text may be code; its target is none.
    yield from _LINK.findall(_CODE.sub("code", text))


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", _FENCE.sub("", page.read_text()), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def wrong(page: Path, link: str) -> str | None:
    """Why a link leads nowhere, if it does."""
    if re.match(r"[a-z]+:", link):
        return None
    path, _, anchor = unquote(link).partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return "no such file"
    if ROOT not in (target, *target.parents):
        return "outside the checkout"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"no such heading; there are: {', '.join(sorted(anchors(target)))}"
    return None


def unreachable(every: list[Path]) -> set[Path]:
    """Pages that nothing leads to from the README."""
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or not page.exists() or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [
            (page.parent / unquote(link).partition("#")[0]).resolve() for link in links(page)
        ]
    return set(every) - reached


def main() -> int:
    """Check all pages; 1 where a link leads nowhere."""
    every = pages()
    problems = [
        f"{page.relative_to(ROOT)}: {link}: {why}"
        for page in every
        for link in links(page)
        if (why := wrong(page, link)) is not None
    ]
    problems += [f"{page.relative_to(ROOT)}: nothing leads here" for page in unreachable(every)]
    for problem in sorted(problems):
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
