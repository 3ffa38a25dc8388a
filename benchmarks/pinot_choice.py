"""What a choice of replicas costs a query in the broker: ours beside Pinot's own (JMH).

A query over 100 segments with 3 replicas, weights in force, on Pinot's real routing classes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PLUGIN = Path(__file__).resolve().parent.parent / "lb-adapters" / "pinot" / "plugin"


def measure(forks: int) -> dict[str, float]:
    """Microseconds a choice by routing, and what ours takes more than Pinot's."""
    target = PLUGIN / "target"
    subprocess.run(
        [
            *("mvn", "--batch-mode", "--offline", "--quiet", "test-compile"),
            *("dependency:build-classpath", "-Dmdep.outputFile=target/classpath"),
        ],
        cwd=PLUGIN,
        check=True,
        stdout=sys.stderr,
    )
    parts = [target / "classes", target / "test-classes", (target / "classpath").read_text()]
    with TemporaryDirectory() as folder:
        result = Path(folder) / "jmh.json"
        subprocess.run(
            [
                *("java", "-cp", ":".join(map(str, parts)), "org.openjdk.jmh.Main"),
                *("ChoiceBenchmark", "-f", str(forks), "-rf", "json", "-rff", str(result)),
            ],
            check=True,
            stdout=sys.stderr,
        )
        rows = json.loads(result.read_text())
    found = {}
    for row in rows:
        name = row["params"]["routing"].replace("-", "_")
        found[f"{name}_us"] = row["primaryMetric"]["score"]
        found[f"{name}_error_us"] = row["primaryMetric"]["scoreError"]
    for mode in ("query", "segment"):
        found[f"{mode}_more_us"] = found[f"{mode}_us"] - found["balanced_us"]
    return {name: round(value, 3) for name, value in found.items()}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON, last on stdout")
    parser.add_argument("--forks", type=int, default=3, help="JVMs for each routing")
    arguments = parser.parse_args()
    found = measure(arguments.forks)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:28} {value:8.3f}")


if __name__ == "__main__":
    main()
