"""HAProxy's log as batches of requests: where it comes from, and how it is read."""

from __future__ import annotations

import logging
from dataclasses import replace

from dial.adapter import RequestBatch
from dial.logs import LogStream, Sink, Source
from dial_haproxy.options import Options
from dial_haproxy.parser import LogParser
from dial_haproxy.sources import open_source

_log = logging.getLogger(__name__)

_SHOWN_BYTES = 80
"""Of a line that cannot be read: enough to tell formats apart, and in an httplog not yet the
URL, which may hold somebody's secret."""


def log_stream(service: str, options: Options) -> LogStream:
    """The adapter's log; opens nothing yet.

    Parameters
    ----------
    service
        Backend whose requests are wanted.
    options
        Checked options: where the log comes from and how it is read.
    """

    def complain(line: bytes) -> None:
        """Say what cannot be read, once a connection: a wrong format is wrong in each line."""
        shown = repr(line[:_SHOWN_BYTES]) + ("..." if len(line) > _SHOWN_BYTES else "")
        _log.warning(
            "log %s: line %s is not in format %s; it and others like it are left out and counted",
            options.log,
            shown,
            options.format,
        )

    def parser() -> LogParser:
        return LogParser(
            service,
            options.format,
            new_connections=options.new_connections,
            until=options.latency,
            compiled=options.compiled,
            zone=options.zone,
            on_malformed=complain,
        )

    async def open_log(sink: Sink) -> Source:
        def sampled(batch: RequestBatch) -> None:
            sink(replace(batch, stands_for=options.sampled))

        return await open_source(options, parser, sink if options.sampled == 1 else sampled)

    return LogStream(str(options.log), open_log, options.max_queued_requests)
