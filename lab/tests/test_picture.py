"""The words over a picture, from the measured numbers."""

from __future__ import annotations

from dial_lab.picture import finding


def figures(p90_ms: float) -> dict[str, dict[str, float]]:
    return {"contended": {"p90_ms": p90_ms}, "rho_bg": {"true": 0.5}}


def test_a_policy_without_a_name_of_its_own_is_called_as_it_is_typed() -> None:
    policies = {"dial": figures(10.0), "leastconn": figures(11.0), "oracle": figures(20.0)}
    title, _ = finding(
        {
            "percentile": 90.0,
            "rate_per_s": 200.0,
            "load": 0.5,
            "severity": 0.5,
            "policies": policies,
        }
    )
    assert title.endswith("P90 10 ms with DIAL, 20 ms with oracle")
