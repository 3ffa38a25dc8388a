"""The facts every adapter must show, each as one test.

An adapter that passes can be driven by the controller: it reads what is, writes what is
wanted, says so when it could not, and never invents a measurement.
"""
# ruff: noqa: S101 - these are tests, though they are shipped

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from dial.adapter import RequestBatch, Severity
from dial.conformance.harness import WAIT_S, Harness, reading_log
from dial.errors import BalancerUnreachable, DialError, StalePlan

CLOCK_TOLERANCE_S = 2.0
"""Between the balancer's clock and the test's: logs may be cut to whole seconds."""


async def weights_of(harness: Harness) -> dict[str, int]:
    """Weights in force, by backend."""
    return {s.name: s.weight for s in (await harness.adapter.read()).servers}


async def distinct_weights(harness: Harness) -> dict[str, int]:
    """Allowed weights, of which no two are equal and none is in force."""
    state = await harness.adapter.read()
    used = {s.weight for s in state.servers}
    free = [w for w in range(state.meaning.minimum, state.meaning.maximum + 1) if w not in used]
    return dict(zip(harness.backends, free, strict=False))


class AdapterConformance:
    """The suite; a subclass provides the fixture ``harness``."""

    @pytest_asyncio.fixture
    async def harness(self) -> AsyncIterator[Harness]:
        """Give a fresh balancer and stop it afterwards (to be overridden)."""
        raise NotImplementedError("a subclass of AdapterConformance provides the fixture harness")
        yield  # makes this a generator, as a fixture must be

    # ------------------------------------------------------------------ reading

    @pytest.mark.asyncio
    async def test_read_gives_the_declared_backends(self, harness: Harness) -> None:
        """Names as configured, all usable."""
        servers = (await harness.adapter.read()).servers
        assert sorted(s.name for s in servers) == sorted(harness.backends)
        assert all(s.usable for s in servers)

    @pytest.mark.asyncio
    async def test_configured_weights_lie_in_the_declared_range(self, harness: Harness) -> None:
        """The meaning holds at least for what the administrator wrote."""
        state = await harness.adapter.read()
        assert 0 <= state.meaning.minimum <= state.meaning.maximum
        for server in state.servers:
            assert state.meaning.minimum <= server.configured_weight <= state.meaning.maximum
            assert server.weight == server.configured_weight

    @pytest.mark.asyncio
    async def test_the_epoch_stays_while_nothing_restarts(self, harness: Harness) -> None:
        """Else every tick would write the weights again."""
        first = (await harness.adapter.read()).epoch
        await harness.send(2)
        assert (await harness.adapter.read()).epoch == first

    @pytest.mark.asyncio
    async def test_the_counter_counts_each_request_once(self, harness: Harness) -> None:
        """``requests_total`` tells lost log lines from missing traffic."""
        before = sum(s.requests_total for s in (await harness.adapter.read()).servers)
        await harness.send(7)
        after = sum(s.requests_total for s in (await harness.adapter.read()).servers)
        assert after - before == 7

    # ------------------------------------------------------------------ writing

    @pytest.mark.asyncio
    async def test_weights_written_are_the_weights_read_back(self, harness: Harness) -> None:
        """Both in the report and in a reading of its own."""
        wanted = await distinct_weights(harness)
        report = await harness.adapter.apply(wanted, version=1)
        assert report.ok
        assert dict(report.in_effect) == wanted
        assert await weights_of(harness) == wanted

    @pytest.mark.asyncio
    async def test_weights_leave_the_configured_weights_alone(self, harness: Harness) -> None:
        """What a plan is undone to must not move with the plan."""
        before = {s.name: s.configured_weight for s in (await harness.adapter.read()).servers}
        await harness.adapter.apply(await distinct_weights(harness), version=1)
        after = {s.name: s.configured_weight for s in (await harness.adapter.read()).servers}
        assert after == before

    @pytest.mark.asyncio
    async def test_applying_twice_is_applying_once(self, harness: Harness) -> None:
        """The same version may come again, as after an answer that was lost."""
        wanted = await distinct_weights(harness)
        await harness.adapter.apply(wanted, version=1)
        report = await harness.adapter.apply(wanted, version=1)
        assert report.ok
        assert await weights_of(harness) == wanted

    @pytest.mark.asyncio
    async def test_applying_nothing_changes_nothing(self, harness: Harness) -> None:
        """An empty plan is a plan."""
        before = await weights_of(harness)
        assert (await harness.adapter.apply({}, version=1)).ok
        assert await weights_of(harness) == before

    @pytest.mark.asyncio
    async def test_a_backend_not_named_keeps_its_weight(self, harness: Harness) -> None:
        """A plan for one backend is no plan for the others."""
        before = await weights_of(harness)
        first, *others = harness.backends
        wanted = await distinct_weights(harness)
        assert (await harness.adapter.apply({first: wanted[first]}, version=1)).ok
        after = await weights_of(harness)
        assert after[first] == wanted[first]
        assert {n: after[n] for n in others} == {n: before[n] for n in others}

    @pytest.mark.asyncio
    async def test_a_plan_older_than_one_applied_is_refused(self, harness: Harness) -> None:
        """And writes nothing."""
        wanted = await distinct_weights(harness)
        await harness.adapter.apply(wanted, version=5)
        with pytest.raises(StalePlan):
            await harness.adapter.apply(dict.fromkeys(wanted, max(wanted.values())), version=4)
        assert await weights_of(harness) == wanted

    @pytest.mark.asyncio
    @pytest.mark.parametrize("name", ["no-such-backend", "a;b", "", "s1 x"])
    async def test_an_unknown_backend_is_reported_and_the_others_are_written(
        self, harness: Harness, name: str
    ) -> None:
        """Whatever its name looks like: it must not become a command of its own."""
        wanted = await distinct_weights(harness)
        report = await harness.adapter.apply({name: 1, **wanted}, version=1)
        assert not report.ok
        assert [n for n, _ in report.failures] == [name]
        assert all(said for _, said in report.failures)
        assert dict(report.in_effect) == wanted
        assert await weights_of(harness) == wanted

    @pytest.mark.asyncio
    @pytest.mark.parametrize("beyond", ["above", "below"])
    async def test_a_weight_out_of_range_is_refused_and_nothing_is_written(
        self, harness: Harness, beyond: str
    ) -> None:
        """Not even the weights beside it that are right."""
        state = await harness.adapter.read()
        before = await weights_of(harness)
        wrong = state.meaning.maximum + 1 if beyond == "above" else -1
        wanted = await distinct_weights(harness)
        wanted[harness.backends[-1]] = wrong
        with pytest.raises(DialError, match=str(wrong)):
            await harness.adapter.apply(wanted, version=1)
        assert await weights_of(harness) == before

    @pytest.mark.asyncio
    async def test_weight_zero_does_what_the_meaning_says(self, harness: Harness) -> None:
        """It drains, and stays usable, for it was no administrator; or it is refused."""
        meaning = (await harness.adapter.read()).meaning
        drained, *others = harness.backends
        if not meaning.zero_drains:
            with pytest.raises(DialError):
                await harness.adapter.apply({drained: 0}, version=1)
            return
        assert (await harness.adapter.apply({drained: 0}, version=1)).ok
        async with reading_log(harness) as log:
            await harness.send(12)
            await log.until(rows=12)
        assert set(log.names()) <= set(others)
        state = await harness.adapter.read()
        assert {s.name: s.usable for s in state.servers}[drained]

    # ------------------------------------------------------------------ restarts

    @pytest.mark.asyncio
    async def test_a_restart_changes_the_epoch(self, harness: Harness) -> None:
        """So that the controller knows its weights may be gone."""
        before = (await harness.adapter.read()).epoch
        await harness.restart()
        assert (await harness.adapter.read()).epoch != before

    @pytest.mark.asyncio
    async def test_weights_can_be_applied_again_after_a_restart(self, harness: Harness) -> None:
        """With the same version: nothing newer was decided."""
        wanted = await distinct_weights(harness)
        await harness.adapter.apply(wanted, version=3)
        await harness.restart()
        assert (await harness.adapter.apply(wanted, version=3)).ok
        assert await weights_of(harness) == wanted

    @pytest.mark.asyncio
    async def test_a_stopped_balancer_is_unreachable(self, harness: Harness) -> None:
        """To a reader and to a writer."""
        wanted = await distinct_weights(harness)
        await harness.stop()
        with pytest.raises(BalancerUnreachable):
            await harness.adapter.read()
        with pytest.raises(BalancerUnreachable):
            await harness.adapter.apply(wanted, version=1)

    # ------------------------------------------------------------------ the log

    @pytest.mark.asyncio
    async def test_each_request_is_one_row_with_plausible_columns(self, harness: Harness) -> None:
        """Times are of now, latencies are positive, nothing failed."""
        began_s = time.time()
        async with reading_log(harness) as log:
            await harness.send(9)
            await log.until(rows=9)
        assert log.rows == 9
        assert set(log.names()) <= set(harness.backends)
        for batch in log.batches:
            assert_well_formed(batch)
            assert not batch.failed.any()
            assert np.all((batch.latency_ms >= 0) & (batch.latency_ms < 1e3 * WAIT_S))
            assert np.all(batch.end_s >= began_s - CLOCK_TOLERANCE_S)
            assert np.all(batch.end_s <= time.time() + CLOCK_TOLERANCE_S)

    @pytest.mark.asyncio
    async def test_the_log_survives_a_restart(self, harness: Harness) -> None:
        """The same iterator goes on, with nobody calling it anew."""
        async with reading_log(harness) as log:
            await harness.send(3)
            await log.until(rows=3)
            await harness.restart()
            await harness.send(4)
            await log.until(rows=7)
        assert log.rows == 7

    @pytest.mark.asyncio
    async def test_malformed_lines_are_counted_and_stop_nothing(self, harness: Harness) -> None:
        """Requests before and after them are read."""
        async with reading_log(harness) as log:
            await harness.send(2)
            await log.until(rows=2)
            await harness.garble(5)
            await log.until(malformed=5)
            await harness.send(2)
            await log.until(rows=4)
        assert (log.rows, log.malformed) == (4, 5)

    @pytest.mark.asyncio
    async def test_closing_ends_the_log_and_leaves_the_weights(self, harness: Harness) -> None:
        """A controller that goes away must not move load by going."""
        wanted = await distinct_weights(harness)
        await harness.adapter.apply(wanted, version=1)
        async with reading_log(harness):
            pass  # the reader returns only if closing the adapter ends its iterator
        assert await weights_of(harness) == wanted

    # ------------------------------------------------------------------ check

    @pytest.mark.asyncio
    async def test_check_finds_no_error_where_there_is_none(self, harness: Harness) -> None:
        """Else nobody would read it."""
        errors = [f for f in await harness.adapter.check() if f.severity is Severity.ERROR]
        assert errors == []

    @pytest.mark.asyncio
    async def test_check_reports_a_stopped_balancer_and_what_to_do(self, harness: Harness) -> None:
        """As a finding, not as an exception."""
        await harness.stop()
        async with asyncio.timeout(WAIT_S):
            errors = [f for f in await harness.adapter.check() if f.severity is Severity.ERROR]
        assert errors
        assert all(f.what for f in errors)
        assert any(f.fix for f in errors)


def assert_well_formed(batch: RequestBatch) -> None:
    """Columns are of one length and of the declared types; indices point at names."""
    columns = (batch.backend, batch.end_s, batch.latency_ms, batch.connect_ms, batch.failed)
    assert {len(column) for column in columns} == {len(batch)}
    assert [column.dtype.name for column in columns] == [
        "int32",
        "float64",
        "float64",
        "float64",
        "bool",
    ]
    assert batch.route is None or len(batch.route) == len(batch)
    if len(batch):
        assert 0 <= batch.backend.min() <= batch.backend.max() < len(batch.names)
        assert np.isfinite(batch.end_s).all()
    connected = batch.connect_ms[~np.isnan(batch.connect_ms)]
    assert np.all(connected >= 0)
