"""Apache as the tenant's application: pages of all lengths, compressed as they are asked for.

A real application that is not the lab's own, as in the paper's Fig. 3 (an Apache that hosts
files).  Apache 2.4 of Debian with its event MPM, sixteen workers in one process, and mod_deflate,
which Debian turns on for text: a page of the mean length costs some milliseconds of CPU and
leaves with a third of its length.  Unlike the lab's application it serves several requests at
the same time, in turns.

Which page is asked for is drawn like any cost: exponential lengths, rounded up to those there are
(:mod:`dial_lab.pages`); longer than the longest is one page in 22,000, and has that length.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from dial.errors import LabError
from dial_lab.addresses import Address, wait_for_port
from dial_lab.pages import MEAN_KIB, MOST_KIB, STEP_KIB, pages
from dial_lab.processes import Children
from dial_lab.resources.base import Cost
from dial_lab.resources.cpu import CpuResource
from dial_lab.topology import Machine
from dial_lab.vms import Vm, vms

PROGRAM = "/usr/sbin/apache2"
MODULES = Path("/usr/lib/apache2/modules")

PAGES = Path("/dev/shm/dial-lab-pages")  # noqa: S108 - memory, readable for Apache's own user
_USER = "www-data"

_CONFIG = """\
ServerRoot {directory}
ServerName {host}
Listen {host}:{port}
PidFile {directory}/pid
ErrorLog {directory}/error.log
DocumentRoot {pages}
{modules}
ServerLimit 1
StartServers 1
ThreadsPerChild 16
MaxRequestWorkers 16
AddType text/html .html
AddOutputFilterByType DEFLATE text/html
# The load generator does not say that it takes what browsers take.
SetEnvIf Request_Protocol HTTP force-gzip
<Directory {pages}>
    Require all granted
</Directory>
"""


def config(directory: Path, address: Address, pages: Path = PAGES) -> str:
    """Apache's configuration; ``directory`` is for its own files."""
    names = ("mpm_event", "authz_core", "mime", "filter", "deflate", "setenvif")
    modules = "".join(f"LoadModule {name}_module {MODULES}/mod_{name}.so\n" for name in names)
    host, port = address
    types = "TypesConfig /dev/null"
    return _CONFIG.format(
        directory=directory, host=host, port=port, pages=pages, modules=f"{modules}{types}"
    )


def write_pages(directory: Path) -> None:
    """Those that Apache serves."""
    (directory / "pages").mkdir(parents=True)
    for kib, text in pages():
        (directory / "pages" / f"{kib}.html").write_text(text, encoding="ascii")


def start(children: Children, machine: Machine, vm: Vm, directory: Path) -> None:
    """Start Apache in the machine's VM and wait until it listens.

    Raises
    ------
    LabError
        If it is not installed, or does not come up.
    """
    if not Path(PROGRAM).exists():
        raise LabError(f"{PROGRAM}: not installed; `make setup-dev` installs it")
    directory.mkdir()
    shutil.chown(directory, _USER)
    path = directory / "apache.conf"
    path.write_text(config(directory, vm.address), encoding="utf-8")
    # The kernel forgets who is to die with whom when the user changes.
    user = (f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups")
    as_user = ("setpriv", *user, "--pdeathsig", "KILL", "--")
    children.start(
        f"app-{machine.name}",
        [*vm.enter, *as_user, PROGRAM, "-f", str(path), "-DFOREGROUND"],
        cores=[machine.core],
        join=machine.tenant_files(),
    )
    wait_for_port(vm.address, children)


class ApacheOnCpu(CpuResource):
    """CPU time, with Apache as the tenant; neighbours are those of the resource."""

    cost = Cost("/pages/{}.html", float(MEAN_KIB), step=STEP_KIB, most=MOST_KIB, of_work=True)

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """An Apache in each VM."""
        shutil.rmtree(PAGES, ignore_errors=True)
        try:
            write_pages(PAGES)
            with vms(machines) as places:
                for machine in machines:
                    directory = PAGES / machine.name
                    start(children, machine, places[machine.name], directory)
                yield {name: vm.address for name, vm in places.items()}
        finally:
            shutil.rmtree(PAGES, ignore_errors=True)
