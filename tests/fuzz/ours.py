"""What DIAL itself writes and reads: agents' posts, models, configuration, recordings, leases."""

from __future__ import annotations

import json
import math
import re
import tempfile
from pathlib import Path

from pydantic import TypeAdapter

from dial.classifier import Branch, Leaf
from dial.controller.recording import Recording
from dial.errors import DialError, IntakeError, LimitError, ModelError, RecordingError, SettingError
from dial.intake.samples import MAX_INTERVAL_S, MAX_SAMPLES, MAX_VALUE, REASONS, decode_batch
from dial.lease import LeaseFile
from dial.limits.guardian import put_back
from dial.model import ModelDocument, load_model, save_model
from dial.netcharge.settings import read_settings as read_charge
from dial.partition.settings import read_settings as read_partition
from dial.settings import load_settings
from dial.types import METRIC_NAMES, NoData, Observation, Plan

from .contract import SERVICE, all_finite, file_of, refused

_TICK = TypeAdapter(tuple[Observation, Plan])


def agent_json(data: bytes) -> bool:
    """One post of an agent."""
    try:
        batch = decode_batch(data)
    except IntakeError as error:
        return _refused_post(error)
    assert batch.backend.isprintable()
    assert batch.agent.isprintable()
    assert 1 <= len(batch.samples) <= MAX_SAMPLES
    for sample in batch.samples:
        assert math.isfinite(sample.at_s)
        assert 0.0 < sample.interval_s <= MAX_INTERVAL_S
        for name in METRIC_NAMES:
            value = getattr(sample, name)
            if isinstance(value, NoData):
                assert value.reason.isprintable()
            else:
                assert 0.0 <= value <= (1.0 if name.endswith("_fraction") else MAX_VALUE)
    return True


def _refused_post(error: IntakeError) -> bool:
    assert error.reason in REASONS
    assert len(str(error)) < 2_000, "the answer sends the post back"
    return refused(error, error.where)


def model(data: bytes) -> bool:
    """A model file; one that is refused for its checksum alone is tried with the right one."""
    with file_of(data) as path:
        try:
            _sound_model(load_model(path), path)
        except ModelError as error:
            right = re.findall(r"the content has '(sha256:[0-9a-f]{64})'", str(error))
            if right:
                path.write_text(json.dumps(json.loads(data) | {"checksum": right[-1]}))
                _sound_model(load_model(path), path)
            return refused(error, str(path))
    return True


def _sound_model(document: ModelDocument, path: Path) -> None:
    assert isinstance(document.decision_tree, Leaf | Branch)
    for shape in document.tail_shapes.values():
        assert math.isclose(shape.t_x_ms(0.0), 1.0, abs_tol=1e-6)
    save_model(document, path)
    assert load_model(path) == document


def settings(data: bytes) -> bool:
    """A configuration file."""
    with file_of(data) as path:
        try:
            found = load_settings(path)
        except SettingError as error:
            return refused(error, str(path))
    # The adapter checks its own options: target adapter_options.
    all_finite(found.model_dump(exclude={"adapter"}))
    assert found.interval_s > 0.0
    assert 50.0 <= found.percentile <= 99.9
    return True


def recording(data: bytes) -> bool:
    """A recording, read to its end."""
    with file_of(data) as path:
        try:
            found = Recording(path)
            ticks = list(found.ticks())
        except RecordingError as error:
            return refused(error, f"{path}, line ")
        assert found.truncated != data.endswith(b"\n")
    for tick in ticks:
        both = (tick.observation, tick.plan)
        assert _TICK.validate_json(_TICK.dump_json(both)) == both
    return bool(ticks)


def lease(data: bytes) -> bool:
    """The file that says which weights are DIAL's own."""
    with file_of(data) as path:
        try:
            found = LeaseFile(path, SERVICE).read()
        except DialError as error:
            return refused(error, str(path))
    assert found is not None
    assert found.service == SERVICE
    assert 0.0 < found.expires_s < math.inf
    return True


def partition_file(data: bytes) -> bool:
    """Which services share a VM, and by which targets."""
    with file_of(data) as path:
        try:
            found = read_partition(str(path))
        except SettingError as error:
            return refused(error, str(path), "allowed: ")
    assert found.journal.startswith("/")
    assert ".." not in found.subtree.split("/")
    for service in found.services:
        assert "/" not in service.name
        assert service.target_ms is None or 0.0 < service.target_ms < math.inf
        assert (service.source is None) == (service.target_ms is None)
    return True


def charge_file(data: bytes) -> bool:
    """Whose quota pays for whose packets."""
    with file_of(data) as path:
        try:
            found = read_charge(str(path))
        except SettingError as error:
            return refused(error, str(path), "allowed: ")
    assert found.ports
    assert all(1 <= port <= 65_535 for own in found.ports.values() for port in own)
    return True


def limit_journal(data: bytes) -> bool:
    """What an agent that was killed has left; nothing but its own groups' files is written."""
    removed: list[str] = []
    with file_of(data) as path, tempfile.TemporaryDirectory(prefix="dial-fuzz-") as root:
        try:
            complaints = put_back(path, removed.append, root)
        except LimitError as error:
            return refused(error, "journal")
        assert not any(Path(root).iterdir())
    assert all(complaint.isprintable() for complaint in complaints)
    assert all(device.isprintable() for device in removed)
    return True
