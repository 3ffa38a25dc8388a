"""A made-up VM for what divides it and limits its services."""

from __future__ import annotations

from pathlib import Path

from dial.agent.files import Tree

V2 = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "".join(
    f"{number} 1 0:{number} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
    for number, name in enumerate(("cpu", "memory", "blkio"), 30)
)

_MEMINFO = "MemTotal:       16777216 kB\nMemAvailable:   12582912 kB\n"


class Host:
    """A made-up /proc and /sys with the group ``vm`` and three services in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = Tree(str(root))
        self.put("/sys/devices/system/cpu/online", "0-1\n")
        self.put("/proc/meminfo", _MEMINFO)

    def put(self, path: str, text: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def text(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def with_v2(self) -> Host:
        self.put("/proc/self/mountinfo", V2)
        for name in ("web", "db", "batch"):
            group = f"/sys/fs/cgroup/vm/{name}"
            self.put(f"{group}/cpu.max", "max 100000\n")
            self.put(f"{group}/memory.high", "max\n")
            self.put(f"{group}/memory.stat", f"anon {2**30}\nfile {2**33}\nshmem 0\n")
            self.put(f"{group}/io.stat", "8:0 rbytes=4096 wbytes=0 rios=1 wios=0\n")
            self.put(f"{group}/io.max", "")
        return self

    def with_v1(self) -> Host:
        self.put("/proc/self/mountinfo", V1)
        for name in ("web", "db", "batch"):
            self.put(f"/sys/fs/cgroup/cpu/vm/{name}/cpu.cfs_quota_us", "-1\n")
            self.put(f"/sys/fs/cgroup/cpu/vm/{name}/cpu.cfs_period_us", "100000\n")
            self.put(
                f"/sys/fs/cgroup/memory/vm/{name}/memory.limit_in_bytes", "9223372036854771712\n"
            )
            self.put(
                f"/sys/fs/cgroup/memory/vm/{name}/memory.stat",
                f"rss 1\ntotal_rss {2**30}\ntotal_shmem 0\n",
            )
            blkio = f"/sys/fs/cgroup/blkio/vm/{name}/blkio.throttle"
            self.put(f"{blkio}.read_bps_device", "")
            self.put(f"{blkio}.write_bps_device", "8:0 5000\n")
            self.put(f"{blkio}.io_service_bytes", "8:0 Read 4096\n8:0 Write 1\nTotal 4097\n")
        self.put("/sys/fs/cgroup/cpu/vm/cpu.cfs_quota_us", "5000\n")
        self.put("/sys/fs/cgroup/cpu/vm/cpu.cfs_period_us", "10000\n")
        return self
