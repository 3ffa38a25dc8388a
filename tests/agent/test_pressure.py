from __future__ import annotations

from collections.abc import Callable, Mapping

from dial.agent.files import Tree
from dial.agent.pressure import Pressure
from dial.types import NoData

Plant = Callable[[Mapping[str, str]], Tree]

PATHS = {name: f"/proc/pressure/{name}" for name in ("cpu", "io", "memory")}


def lines(some: int, full: int) -> str:
    return (
        f"some avg10=50.00 avg60=0.22 avg300=0.21 total={some}\n"
        f"full avg10=50.00 avg60=0.00 avg300=0.00 total={full}\n"
    )


def test_pressure_is_the_growth_of_totals_not_the_average(plant: Plant) -> None:
    pressure = Pressure(plant(dict.fromkeys(PATHS.values(), lines(1_000_000, 0))), PATHS)
    before = pressure.read()
    plant(
        {
            PATHS["cpu"]: lines(1_500_000, 0),
            PATHS["io"]: lines(1_200_000, 100_000),
            PATHS["memory"]: lines(1_000_000, 0),
        }
    )
    # microseconds over 2 s
    assert pressure.rates(before, pressure.read(), 2.0) == {
        "psi_cpu_some_fraction": 0.25,
        "psi_io_some_fraction": 0.1,
        "psi_io_full_fraction": 0.05,
        "psi_memory_some_fraction": 0.0,
    }


def test_a_missing_file_costs_its_own_signals_and_says_what_it_takes(plant: Plant) -> None:
    pressure = Pressure(plant({PATHS["cpu"]: lines(5, 0), PATHS["memory"]: lines(5, 0)}), PATHS)
    rates = pressure.rates(pressure.read(), pressure.read(), 1.0)
    missing = rates["psi_io_full_fraction"]
    assert isinstance(missing, NoData)
    assert "psi=1" in missing.reason
    assert rates["psi_cpu_some_fraction"] == 0.0
