"""``deploy/prometheus`` and ``deploy/grafana``, looked at with nothing running.

Grafana itself is no Debian package, so a dashboard is checked for its structure here, and each
of its queries on a real Prometheus in ``tests/e2e/test_prometheus.py``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dial.metrics import Metrics
from dial.types import Cause

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "dial.rules.yml"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dial.json").read_text())
COLUMNS = 24
"""Of Grafana's grid."""


def promtool(*arguments: str) -> str:
    """Run it on the files where they lie; what it says."""
    if shutil.which("promtool") is None:
        pytest.skip("no promtool program here: install Debian's prometheus")
    done = subprocess.run(
        ["promtool", *arguments],
        cwd=DEPLOY / "prometheus",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_promtool_takes_the_configuration_with_its_rules() -> None:
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")


def test_each_alert_fires_when_it_should_and_not_when_all_is_well() -> None:
    assert "SUCCESS" in promtool("test", "rules", "dial.rules.test.yml")


def test_each_alert_has_a_test_a_severity_and_says_what_to_do() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    tested = (DEPLOY / "prometheus" / "dial.rules.test.yml").read_text()
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket", "info")
        assert rule["annotations"].keys() == {"summary", "action"}
        assert rule["alert"] in tested


def queries() -> list[str]:
    """Of the dashboard's panels."""
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_every_metric_that_is_asked_for_is_one_of_ours() -> None:
    suffix = {"counter": "_total", "histogram": "_bucket", "info": "_info"}
    ours = {f.name + suffix.get(f.type, "") for f in Metrics().registry.collect()}
    asked = set(re.findall(r"\bdial_\w+", "\n".join([*queries(), RULES.read_text()])))
    assert asked - ours == set()
    assert len(asked) > 15


def test_every_verdict_has_a_colour_of_its_own() -> None:
    (panel,) = [panel for panel in DASHBOARD["panels"] if panel["title"] == "Verdict"]
    options = panel["fieldConfig"]["defaults"]["mappings"][0]["options"].values()
    assert {option["text"] for option in options} == set(Cause)
    assert len({option["color"] for option in options}) == len(Cause)
    for number, option in enumerate(options):
        assert f"{number} * dial_backend_verdict" in panel["targets"][0]["expr"]
        assert option["index"] == number


def test_the_dashboards_panels_have_a_place_each_and_use_its_variables() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        assert 0 <= grid["x"] < grid["x"] + grid["w"] <= COLUMNS
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["title"]
        assert panel["description"]
        assert panel["targets"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        for target in panel["targets"]:
            assert 'job="$job"' in target["expr"]
            assert target["datasource"]["uid"] == "${datasource}"
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD["panels"])))
    assert used == variables
    # Grafana fills these in; an id would be that of somebody's database.
    assert "id" not in DASHBOARD
    assert DASHBOARD["uid"] == "dial"
