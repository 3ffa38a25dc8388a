"""haproxy.cfg as nobody would write it: bytes, words and statements in any order."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from dial.adapter import Severity, apply_edits
from dial.errors import SettingError
from dial_haproxy import check_files
from dial_haproxy.cfg.check import check
from dial_haproxy.cfg.lines import ConfigFile
from dial_haproxy.cfg.sections import parse
from dial_haproxy.options import Options, read_options

WORDS = r"""
    global defaults frontend backend listen ring log-forward no log log-format option httplog
    httpclose dontlog-normal logasap stats socket level admin user mode http tcp balance hdr(x)
    static-rr leastconn server server-template default-server weight agent-check agent-port
    cookie stick on use_backend default_backend %[x] from a b ring@a ring@dial dial global
    127.0.0.1:5140 /run/s ipv4@127.0.0.1:9 notice info sample 1:2 format raw 5 0 1-3 -1 bind
    http-request set-log-level silent setenv X "$X" '#' .if .elif .else .endif 1 defined(X)
    server-state-file load-server-state-from-file unix-bind prefix nbproc log-proto octet-count
    " \x \ '
"""

HEADERS = """\
global
defaults
defaults d
defaults from d
frontend f
frontend g from d
backend b
listen l
ring dial
ring a
log-forward x
"""

STATEMENTS = """\
mode http
mode tcp
log global
no log
log ring@dial local0
log ring@a format raw sample 1:2 local0 notice
log 127.0.0.1:514 local0
log "$HOST" local0
log-format x
option httplog
option tcplog
option dontlog-normal
no option dontlog-normal
option logasap
option httpclose
default_backend b
use_backend l if x
use_backend %[a]
server s 10.0.0.1:80 agent-check
server t 10.0.0.2:80 weight 0
server dial 127.0.0.1:5140
server v 127.0.0.1:9 log-proto octet-count
default-server agent-check agent-port 8
cookie x
balance first
balance uri
stats socket /run/s level user
stats socket :9 level admin
http-request set-log-level silent
.if defined(X)
.if 0
.else
.endif
server-state-file x
load-server-state-from-file global
nbproc 2
bind 127.0.0.1:514
dgram-bind 127.0.0.1:514
"""

anything = st.lists(
    st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=6).map(" ".join), max_size=25
).map("\n".join)

section = st.builds(
    lambda header, statements: "\n ".join([header, *statements]) + "\n",
    st.sampled_from(HEADERS.splitlines()),
    st.lists(st.sampled_from(STATEMENTS.splitlines()), max_size=8),
)
sections = st.lists(section, min_size=1, max_size=8).map("".join)

options = st.builds(
    lambda log, log_format, new: read_options(
        "b", {"socket": "/run/s", "log": log, "log_format": log_format, "new_connections": new}
    ),
    st.sampled_from(["tcp://127.0.0.1:5140", "syslog://127.0.0.1:514", "file:/l"]),
    st.sampled_from(["dial", "httplog"]),
    st.booleans(),
)


@given(st.one_of(st.binary(max_size=400), anything.map(str.encode)))
@example(b"backend b\n server-template s 1-999999999 x:1\n")
@example(b"global\nfrontend f\n use_backend \xff\nbackend \xff\n")
@example(
    b"global\n log ring@ len\nlisten l\n mode http\n log\n log x\n option\n balance\n server\n"
)
def test_any_bytes_give_findings_or_a_setting_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "haproxy.cfg"
    path.write_bytes(data)
    findings = None
    with suppress(SettingError):
        findings = check_files([path])
    assert all(f.what for f in findings or ())


@given(sections, st.one_of(st.none(), options))
def test_findings_of_any_sections_can_all_be_made_and_once_is_enough(
    text: str, options: Options | None
):
    def look(text: str):
        return check(parse([ConfigFile.of("h.cfg", text)]), "b" if options else "", options)

    findings = look(text)
    again = look(apply_edits(text, [edit for f in findings for edit in f.edits]))
    if not any("cannot read" in f.what for f in findings):
        assert [f for f in again if f.severity is Severity.ERROR and f.edits] == []
