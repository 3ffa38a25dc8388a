"""The check that nothing a user can see is undocumented, shown to fail where something is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from fastapi import FastAPI
from prometheus_client import Counter
from pydantic import BaseModel, Field

from dial.metrics import Metrics

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "reference.py"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As where it is run: it imports what lies beside it.
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        spec.loader.exec_module(module)
    return module


def test_a_setting_without_a_description_fails(reference: ModuleType) -> None:
    class Inner(BaseModel):
        told: int = Field(default=1, description="Something.")
        untold: int = 2

    class Table(BaseModel):
        inner: Inner = Inner()

    with pytest.raises(reference.Undocumented, match=r"setting inner\.untold"):
        reference.settings_page(Table)


def test_a_metric_without_a_help_text_fails(reference: ModuleType) -> None:
    metrics = Metrics()
    Counter("dial_untold_total", "", registry=metrics.registry)
    with pytest.raises(reference.Undocumented, match="metric dial_untold"):
        reference.metrics_page(metrics)


def test_an_endpoint_without_a_docstring_fails(reference: ModuleType) -> None:
    app = FastAPI(docs_url=None, redoc_url=None)
    app.get("/untold")(lambda: None)
    with pytest.raises(reference.Undocumented, match="endpoint GET /untold"):
        reference.api_page(app)


def test_an_endpoint_that_is_hidden_fails(reference: ModuleType) -> None:
    app = FastAPI(docs_url=None, redoc_url=None)
    app.get("/hidden", include_in_schema=False)(lambda: None)
    with pytest.raises(reference.Undocumented, match="endpoint /hidden"):
        reference.api_page(app)


def test_a_page_that_differs_from_the_code_fails(
    reference: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["reference.py"])
    assert reference.main() == 0
    monkeypatch.setattr(sys, "argv", ["reference.py", "--check"])
    assert reference.main() == 0
    (tmp_path / "http.md").write_text("something else")
    assert reference.main() == 1
