"""What adapters share to read a balancer's log: a bounded queue of batches, a followed file."""

from __future__ import annotations

from dial.logs.follow import FollowedFile, Follower
from dial.logs.stream import BatchQueue, LogCounters, LogStream, OpenSource, Sink, Source

__all__ = [
    "BatchQueue",
    "FollowedFile",
    "Follower",
    "LogCounters",
    "LogStream",
    "OpenSource",
    "Sink",
    "Source",
]
