"""Findings about haproxy.cfg: each check, and whether what they propose is right."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import dial_haproxy
from dial.adapter import Finding, Severity, apply_edits
from dial_haproxy import check_files, snippet
from dial_haproxy.cfg.check import check
from dial_haproxy.cfg.delay import ELSEWHERE_AT_ONCE, MOST_SERVERS, REDISPATCH, SOONER_STILL
from dial_haproxy.cfg.lines import ConfigFile
from dial_haproxy.cfg.log_format import reading
from dial_haproxy.cfg.sections import parse
from dial_haproxy.cfg.service import SOONER
from dial_haproxy.config import LOG_FORMAT, expected_delay
from dial_haproxy.options import read_options

CONFIGS = Path(__file__).parent / "configs"
ACCEPTED = ("debian", "listen", "inheritance", "right", "ring")

GLOBAL = "global\n    stats socket /run/s level admin\n"
HTTP = "defaults\n    mode http\n    log /dev/log local0\n    option httplog\n"
FRONTEND = "frontend www\n    bind :80\n    default_backend app\n"
BACKEND = "backend app\n    server s1 10.0.0.1:80\n    server s2 10.0.0.2:80\n"


def findings_of(text: str, service: str = "", **options) -> list[Finding]:
    config = parse([ConfigFile.of("h.cfg", text)])
    return check(config, service, read_options("app", options) if options else None)


def mended(text: str, findings: Iterable[Finding]) -> str:
    return apply_edits(text, [edit for finding in findings for edit in finding.edits])


def of(findings: Iterable[Finding], severity: Severity) -> list[str]:
    return [f"{f.at} {f.what}" for f in findings if f.severity is severity]


def errors(findings: Iterable[Finding]) -> list[str]:
    return of(findings, Severity.ERROR)


def warnings(findings: Iterable[Finding]) -> list[str]:
    return of(findings, Severity.WARNING)


# ---------------------------------------------------------------- whole files


@pytest.mark.parametrize("name", ACCEPTED)
def test_findings_made_as_proposed_give_a_file_haproxy_accepts_and_check_passes(
    name, tmp_path, monkeypatch, haproxy_check
):
    monkeypatch.setenv("APP1", "10.0.0.1")
    path = tmp_path / "haproxy.cfg"
    path.write_text((CONFIGS / f"{name}.cfg").read_text())
    assert haproxy_check(path).returncode == 0, "the fixture itself"
    findings = check_files([path])
    assert findings is not None
    assert bool(errors(findings)) == (name != "right")
    path.write_text(mended(path.read_text(), findings))
    after = haproxy_check(path)
    assert after.returncode == 0, after.stderr
    again = check_files([path])
    assert again is not None
    assert errors(again) == []
    assert not any(f.edits for f in again), "nothing is proposed twice"


def test_several_files_are_mended_each_in_its_own(tmp_path):
    parts = {"1-global.cfg": "global\n", "2-http.cfg": HTTP, "3-site.cfg": FRONTEND + BACKEND}
    for name, text in parts.items():
        (tmp_path / name).write_text(text.replace("option httplog", "option tcplog"))
    findings = check_files([tmp_path])
    assert findings is not None
    edits = [edit for f in findings for edit in f.edits]
    assert {Path(edit.path).name for edit in edits} == set(parts)
    for path in tmp_path.iterdir():
        own = [edit for edit in edits if edit.path == str(path)]
        path.write_text(apply_edits(path.read_text(), own))
    assert errors(check_files([tmp_path]) or ()) == []


def test_nothing_has_to_change_where_all_is_right():
    findings = check_files([CONFIGS / "right.cfg"])
    assert findings is not None
    assert {f.severity for f in findings} == {Severity.OK, Severity.NOTE}
    (note,) = [f for f in findings if f.severity is Severity.NOTE]
    assert 'service = "app"' in note.settings
    assert 'socket = "/run/haproxy/dial.sock"\nlog = "tcp://127.0.0.1:5140"' in note.settings


def test_each_broken_line_is_named_and_the_rest_is_still_looked_at(haproxy_check):
    path = CONFIGS / "broken.cfg"
    assert haproxy_check(path).returncode != 0
    findings = check_files([path])
    assert findings is not None
    unreadable = [f.at for f in findings if "cannot read this line" in f.what]
    assert unreadable == [f"{path}:{line}" for line in (2, 5, 6, 9, 12)]
    assert any("level user" in f.what for f in findings)
    assert any("no line break" in f.what for f in findings)


def test_the_fewest_lines_are_asked_for_where_a_usual_log_is_there():
    findings = check_files([CONFIGS / "debian.cfg"])
    assert findings is not None
    (wrong,) = [f for f in findings if f.severity is Severity.ERROR]
    assert wrong.at.endswith("debian.cfg:36")
    assert wrong.edits[0].insert == ("\tbalance roundrobin   # the old box is half as fast",)


@pytest.mark.parametrize(
    "data", [b"", b"# only\n", b"{}", b'service = "x"\n', b"global:\n  a: 1\n"]
)
def test_another_programs_file_is_not_ours(tmp_path, data):
    path = tmp_path / "x"
    path.write_bytes(data)
    assert check_files([path]) is None


# ---------------------------------------------------------------- the socket


@pytest.mark.parametrize(
    ("line", "fixed"),
    [
        ("stats socket /run/s", "stats socket /run/s level admin"),
        ("stats socket /run/s level user mode 660", "stats socket /run/s mode 660 level admin"),
        ("stats socket unix@/run/s level operator", "stats socket unix@/run/s level admin"),
    ],
)
def test_a_socket_below_admin_is_raised(line, fixed):
    text = f"global\n    {line}\n{HTTP}{FRONTEND}{BACKEND}"
    findings = findings_of(text)
    assert [e.partition(" ")[0] for e in errors(findings)] == ["h.cfg:2"]
    assert f"\n    {fixed}\n" in mended(text, findings)


def test_without_a_socket_one_is_added_and_without_global_that_too():
    for text in (f"global\n    daemon\n{HTTP}{FRONTEND}{BACKEND}", f"{HTTP}{FRONTEND}{BACKEND}"):
        new = mended(text, findings_of(text))
        assert "global\n" in new
        assert snippet(socket="/run/haproxy/dial.sock").in_global in new
        assert errors(findings_of(new)) == []


def test_the_socket_of_dials_options_is_the_one_that_counts():
    text = f"{GLOBAL}{HTTP}{FRONTEND}{BACKEND}"
    options = {"socket": "tcp://127.0.0.1:9999", "log": "file:/var/log/haproxy.log"}
    findings = findings_of(text, "app", **options)
    assert len(errors(findings)) == 1
    new = mended(text, findings)
    assert "stats socket ipv4@127.0.0.1:9999 mode 660 level admin" in new
    assert errors(findings_of(new, "app", **options)) == []


def test_a_prefix_of_unix_sockets_is_part_of_their_path():
    text = f"global\n    unix-bind prefix /srv\n    stats socket /s level admin\n{HTTP}{FRONTEND}"
    findings = findings_of(text + BACKEND, "app", socket="/srv/s", log="file:/l")
    assert errors(findings) == []


def test_a_socket_open_to_others_is_warned_of():
    text = f"global\n    stats socket :9999 level admin\n{HTTP}{FRONTEND}{BACKEND}"
    findings = findings_of(text, "app", socket="tcp://10.0.0.5:9999", log="file:/l")
    assert any("reached from outside" in w for w in warnings(findings))


# ---------------------------------------------------------------- the backend


@pytest.mark.parametrize(
    ("algorithm", "instead"),
    [
        ("static-rr", "roundrobin"),
        ("first", "leastconn"),
        ("source", "leastconn"),
        ("hdr(host)", "leastconn"),
        ("hash path,field(2,/)", "leastconn"),
        ("uri depth 3", "leastconn"),
    ],
)
def test_an_algorithm_without_use_for_weights_is_replaced(algorithm, instead):
    text = f"{GLOBAL}{HTTP}{FRONTEND}{BACKEND}    balance {algorithm}  # why\n"
    findings = findings_of(text)
    assert len(errors(findings)) == 1
    assert f"\n    balance {instead}  # why\n" in mended(text, findings)


@pytest.mark.parametrize("algorithm", ["roundrobin", "leastconn", "random", "random(3)"])
def test_an_algorithm_with_weights_is_left_alone(algorithm):
    text = f"{GLOBAL}{HTTP}{FRONTEND}{BACKEND}    balance {algorithm}\n"
    assert errors(findings_of(text)) == []


@pytest.mark.parametrize(
    ("balance", "said"),
    [("", True), ("roundrobin", True), ("random(2)", True), ("leastconn", False)],
)
def test_a_better_algorithm_is_recommended_and_not_put_in(balance, said):
    line = f"    balance {balance}\n" if balance else ""
    notes = [f for f in findings_of(f"{GLOBAL}{HTTP}{FRONTEND}{BACKEND}{line}") if SOONER in f.what]
    assert [f.edits for f in notes] == [()] * said


TEXT = f"{GLOBAL}{HTTP}{FRONTEND}{BACKEND}"


def with_rules(servers: Iterable[str], text: str = TEXT) -> str:
    """The rules for these servers, in a file that has s1 and s2."""
    balance = "leastconn" if "balance leastconn" in text else "roundrobin"
    rules = expected_delay("app", list(servers), balance=balance)
    head, http, tail = text.partition("defaults\n")
    return (
        head
        + "".join(f"    {statement}\n" for statement in rules.in_global)
        + f"{http}{tail}"
        + "".join(f"    {statement}\n" for statement in rules.in_backend)
    )


def test_rules_for_the_servers_that_there_are_are_right():
    findings = findings_of(with_rules(["s1", "s2"]))
    assert any("rules for the shortest" in f.what for f in findings if f.severity is Severity.OK)
    assert not any(SOONER_STILL in f.what or "goes past" in f.what for f in findings)
    with_balance = findings_of(with_rules(["s1", "s2"], f"{TEXT}    balance leastconn\n"))
    assert any("a weight is a service rate" in f.what for f in with_balance)


@pytest.mark.parametrize("names", [["s1"], ["s1", "s3"], ["s1", "s2", "s3"], ["s2", "s1"]])
def test_rules_for_other_servers_are_made_anew(names):
    text = with_rules(names)
    findings = findings_of(text)
    (said,) = warnings(findings)
    assert "not those for its servers" in said
    assert ("they leave out s2, and 'balance' chooses" in said) == ("s2" not in names)
    new = mended(text, [f for f in findings if f.severity is Severity.WARNING])
    assert sorted(new.splitlines()) == sorted(with_rules(["s1", "s2"]).splitlines())
    assert warnings(findings_of(new)) == []


def test_a_rule_that_ran_into_another_line_is_changed_once():
    whole = with_rules(["s1", "s2"], f"{TEXT}    balance leastconn\n")
    joined = whole.replace("leastconn\n    http-request", "leastconnhttp-request")
    findings = findings_of(joined)
    assert len(errors(findings)) == 1
    wrong = Severity.ERROR, Severity.WARNING
    new = mended(joined, [f for f in findings if f.severity in wrong])
    assert sorted(new.splitlines()) == sorted(whole.splitlines())
    assert errors(findings_of(new)) == warnings(findings_of(new)) == []


def test_rules_are_recommended_with_their_lines_and_not_put_in():
    text = f"{GLOBAL}{HTTP}{FRONTEND}{BACKEND}    balance leastconn\n"
    (note,) = [f for f in findings_of(text) if SOONER_STILL in f.what]
    assert note.edits == ()
    lines = [line.strip() for line in note.fix.splitlines()]
    rules = expected_delay("app", ["s1", "s2"])
    assert lines == ["in 'global':", *rules.in_global, "in 'backend app':", *rules.in_backend]


@pytest.mark.parametrize(
    ("line", "leaves_it"),
    [
        ("balance leastconn", True),
        ("balance roundrobin", False),
        ("balance random(2)", False),
        ("", False),
        ('balance "$HOW"', False),
    ],
)
def test_rules_leave_the_choice_among_equal_weights_to_leastconn_alone(line, leaves_it):
    """To it alone they may: any other ``balance`` would not choose as they do."""
    text = f"{TEXT}    {line}\n"
    present = text + "".join(
        f"    {statement}\n" for statement in expected_delay("app", ["s2"]).in_backend
    )
    (edits,) = [f.edits for f in findings_of(present) if "not those for its servers" in f.what]
    assert ("dial_uneven" in str(edits)) == leaves_it


@pytest.mark.parametrize(("servers", "said"), [(1, False), (2, True), (16, True), (17, False)])
def test_rules_are_recommended_for_some_servers(servers, said):
    lines = "".join(f"    server s{n} 10.0.0.{n}:80\n" for n in range(servers))
    findings = findings_of(f"{GLOBAL}{HTTP}{FRONTEND}backend app\n{lines}")
    assert any(SOONER_STILL in f.what for f in findings) == said


def test_servers_of_a_template_come_and_go_and_have_no_rules():
    text = f"{GLOBAL}{HTTP}{FRONTEND}backend app\n    server-template s 3 a.example:80\n"
    assert not any(SOONER_STILL in f.what for f in findings_of(text))


STAYING = ["cookie SRV insert", "stick on src", "stick match src table t"]


@pytest.mark.parametrize(
    "line",
    [
        *STAYING,
        *("balance source", "balance uri", "balance hdr(host)", "balance static-rr", "mode tcp"),
        'balance "$HOW"',
    ],
)
def test_rules_are_not_recommended_where_they_would_choose_for_what_must_stay(line):
    assert not any(SOONER_STILL in f.what for f in findings_of(f"{TEXT}    {line}\n"))


def test_a_hash_is_not_to_be_replaced_by_a_cookie_under_the_rules():
    fixes = [f.fix for f in findings_of(f"{TEXT}    balance source\n") if "keep it" in f.fix]
    assert len(fixes) == 1
    assert "'cookie' keeps sessions under any algorithm, without rules for" in fixes[0]


@pytest.mark.parametrize("line", STAYING)
def test_rules_are_taken_out_where_clients_stay_with_their_server(line):
    text = with_rules(["s1", "s2"], f"{TEXT}    {line}\n")
    findings = findings_of(text)
    (said,) = warnings(findings)
    assert f"'{line}': rules for the shortest expected delay choose before it" in said
    new = mended(text, [f for f in findings if f.severity is Severity.WARNING])
    assert new == f"{TEXT}    {line}\n"


@pytest.mark.parametrize(
    ("lines", "limited"),
    [
        (("server s1 a:80 maxconn 10", "server s2 b:80"), ["s1"]),
        (
            ("default-server maxconn 10", "server s1 a:80", "server s2 b:80 maxconn 0"),
            ["s1"],
        ),
        (("server s1 a:80 maxconn 0", "server s2 b:80"), []),
        (("server s1 a:80", "server s2 b:80", "server s3 c:80 maxconn 10 backup"), []),
    ],
)
def test_rules_look_at_whether_a_server_is_full_where_it_can_be(lines, limited):
    backend = "\n    ".join(("backend app", *lines)) + "\n"
    (rules,) = [
        f.fix for f in findings_of(f"{GLOBAL}{HTTP}{FRONTEND}{backend}") if SOONER_STILL in f.what
    ]
    assert re.findall(r"!\{ srv_conn_free\(app/(\w+)\) eq 0 \}", rules) == limited


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("option redispatch", True),
        ("option redispatch 3", True),
        ("option redispatch -1", True),
        ("option redispatch 1", False),
        ("option redispatch 0", False),
        ("option httpclose", False),
        ("option redispatch\n    no option redispatch", False),
        ("option redispatch\n    option redispatch 1", False),
    ],
)
@pytest.mark.parametrize("where", [HTTP, BACKEND])
def test_what_a_server_refuses_is_to_go_elsewhere_at_once_under_the_rules(where, option, said):
    text = TEXT.replace(where, f"{where}    {option}\n")
    fixes = [f.fix for f in findings_of(text) if ELSEWHERE_AT_ONCE in f.what]
    assert fixes == [REDISPATCH] * said
    present = with_rules(["s1", "s2"], text)
    findings = findings_of(present)
    assert [ELSEWHERE_AT_ONCE in what for what in warnings(findings)] == [True] * said
    new = mended(present, [f for f in findings if f.severity is Severity.WARNING])
    assert warnings(findings_of(new)) == []
    assert new.count(f"    {REDISPATCH}\n") == (said or option.endswith(REDISPATCH))


@pytest.mark.parametrize(
    ("weight", "said"), [("", True), ("weight 15", True), ("weight 16", False)]
)
def test_a_slow_start_is_to_have_as_many_steps_for_the_rules_as_for_balance(weight, said):
    text = TEXT.replace("10.0.0.2:80", f"10.0.0.2:80 check slowstart 30s {weight}")
    (what,) = warnings(findings_of(with_rules(["s1", "s2"], text))) or [""]
    assert (f"takes server s2 from weight 1 to {weight[7:] or 1}," in what) == said
    notes = of(findings_of(text), Severity.NOTE)
    assert any("slowstart takes server s2" in n for n in notes) == said


@pytest.mark.parametrize(
    ("lines", "condition"),
    [
        ((), "eq 0 }"),
        (("server b1 c:80 backup",), "eq 0 } { var(txn.dial_usable) -m int gt 1 }"),
        (("server-template b 2 c:80 backup",), "eq 0 } { var(txn.dial_usable) -m int gt 1 }"),
        (("server b1 c:80 backup", "option allbackups"), "gt 1 }"),
        (("server-template b 2 c:80 backup", "option allbackups", "server s3 d:80"), "gt 2 }"),
        (("server-template b 2 c:80 backup", "option allbackups"), None),
    ],
)
def test_rules_choose_among_more_servers_than_there_can_be_backup_ones(lines, condition):
    text = TEXT + "".join(f"    {line}\n" for line in lines)
    fixes = [f.fix for f in findings_of(text) if SOONER_STILL in f.what]
    assert [fix.endswith(condition) for fix in fixes] == [True] * (condition is not None)


@pytest.mark.parametrize("balance", ["leastconn", "roundrobin"])
def test_haproxy_takes_the_rules_of_as_many_servers_as_they_are_recommended_for(
    tmp_path, haproxy_check, balance
):
    names = [f"s{n}" for n in range(MOST_SERVERS)]
    servers = "".join(f"    server {name} 10.0.0.1:80 maxconn 9\n" for name in names)
    text = f"{GLOBAL}{HTTP}{FRONTEND}backend app\n    balance {balance}\n{servers}"
    (lines,) = [f.fix for f in findings_of(text) if SOONER_STILL in f.what]
    in_global, in_backend = lines.removeprefix("in 'global':\n").split("in 'backend app':\n")
    whole = text.replace(GLOBAL, GLOBAL + in_global) + in_backend + "\n"
    path = tmp_path / "haproxy.cfg"
    path.write_text(whole.replace("/run/s", str(tmp_path / "s")))
    checked = haproxy_check(path)
    assert checked.returncode == 0, checked.stderr
    assert warnings(findings_of(whole)) == []


def test_backends_of_similar_names_have_rules_of_their_own(tmp_path, haproxy_check):
    services, servers = ("my", "my-app", "my.app", "my_app"), ("web-1", "web.1", "web_1")
    rules = {service: expected_delay(service, servers) for service in services}
    in_global = [statement for of_one in rules.values() for statement in of_one.in_global]
    backends = "".join(
        f"backend {service}\n    balance leastconn\n"
        + "".join(f"    {statement}\n" for statement in of_one.in_backend)
        + "".join(f"    server {name} 10.0.0.1:80\n" for name in servers)
        for service, of_one in rules.items()
    )
    frontend = "".join(f"    use_backend {name} if {{ path /{name} }}\n" for name in services)
    text = (
        GLOBAL
        + "".join(f"    {statement}\n" for statement in in_global)
        + f"{HTTP}frontend www\n    bind :80\n{frontend}{backends}"
    )
    path = tmp_path / "haproxy.cfg"
    path.write_text(text.replace("/run/s", str(tmp_path / "s")))
    checked = haproxy_check(path)
    assert checked.returncode == 0, checked.stderr
    findings = findings_of(text)
    assert warnings(findings) == []
    right = [f for f in of(findings, Severity.OK) if "rules for the shortest" in f]
    assert len(right) == len(services)


def test_an_inherited_algorithm_is_overridden_not_changed_for_all():
    text = f"{GLOBAL}{HTTP}    balance source\n{FRONTEND}{BACKEND}backend other\n"
    new = mended(text, findings_of(text))
    assert "    balance source\n" in new
    assert "backend app\n    balance leastconn\n" in new


def test_tcp_mode_is_an_error_wherever_the_requests_pass():
    text = f"{GLOBAL}{HTTP}{FRONTEND}    mode tcp\n{BACKEND}"
    findings = findings_of(text)
    assert len(errors(findings)) == 1
    assert "frontend www: mode tcp" in errors(findings)[0]
    assert errors(findings_of(mended(text, findings))) == []


def test_agents_of_many_servers_are_one_finding_with_an_edit_each():
    servers = "".join(f"    server s{n} 10.0.0.{n}:80 agent-check\n" for n in range(1, 9))
    text = f"{GLOBAL}{HTTP}{FRONTEND}backend app\n{servers}"
    findings = findings_of(text)
    (said,) = warnings(findings)
    assert "agent-check of s1, s2, s3, s4, s5 and 3 more:" in said
    assert "agent-check" not in mended(text, findings)


def test_agents_that_set_weights_are_taken_off_their_server():
    text = (
        f"{GLOBAL}{HTTP}{FRONTEND}backend app\n    default-server agent-check agent-port 9\n"
        "    server s1 10.0.0.1:80 check agent-check agent-port 8 agent-inter 2s weight 5\n"
        "    server s2 10.0.0.2:80 no-agent-check\n"
    )
    findings = findings_of(text)
    assert [w.partition(" ")[0] for w in warnings(findings)] == ["h.cfg:12"]
    assert "    server s1 10.0.0.1:80 check weight 5 no-agent-check\n" in mended(text, findings)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("    server s1 10.0.0.1:80\n", "1 server "),
        ("    server s1 10.0.0.1:80\n    server s2 10.0.0.2:80 backup\n", "1 server "),
        ("    server-template s 1 a.example:80\n", "1 server "),
    ],
)
def test_one_server_cannot_share_load(lines, said):
    findings = findings_of(f"{GLOBAL}{HTTP}{FRONTEND}backend app\n{lines}")
    assert any(said in w for w in warnings(findings))


def test_different_weights_and_templates_are_fine_and_said():
    lines = (
        "backend app\n    server s1 10.0.0.1:80 weight 9\n    server-template t 2-4 a.example:80\n"
    )
    findings = findings_of(f"{GLOBAL}{HTTP}{FRONTEND}{lines}")
    (said,) = [f.what for f in findings if "4 servers" in f.what]
    assert "server-template" in said
    assert "weights differ, which is fine" in said
    assert (errors(findings), warnings(findings)) == ([], [])


def test_sessions_that_stay_with_their_server_are_warned_of():
    for line in ("cookie SRV insert", "stick on src"):
        findings = findings_of(f"{GLOBAL}{HTTP}{FRONTEND}{BACKEND}    {line}\n")
        assert any("clients stay" in w for w in warnings(findings))


def test_new_connections_is_held_against_the_options_of_the_sections():
    text = f"{GLOBAL}{HTTP}{FRONTEND}{BACKEND}"
    options = {"socket": "/run/s", "log": "file:/l"}
    findings = findings_of(text, "app", **options, new_connections=True)
    assert any("new_connections is true" in w for w in warnings(findings))
    new = mended(text, findings)
    assert "backend app\n    option httpclose\n" in new
    assert warnings(findings_of(new, "app", **options, new_connections=True)) == []
    assert any("new_connections = true" in n for n in of(findings_of(new), Severity.NOTE))


def test_several_backends_are_all_looked_at_and_a_named_one_alone():
    text = f"{GLOBAL}{HTTP}{FRONTEND}    use_backend api if TRUE\n{BACKEND}" + BACKEND.replace(
        "backend app\n", "backend api\n    balance first\n"
    )
    findings = findings_of(text)
    assert any("2 backends could be DIAL's: app, api" in f.what for f in findings)
    assert len(errors(findings)) == 1
    assert errors(findings_of(text, "app")) == []
    assert errors(findings_of(text, "web")) == ["h.cfg:1 no backend 'web'; there are: app, api"]


def test_a_frontend_that_chooses_by_expression_cannot_be_judged():
    text = f"{GLOBAL}{HTTP}frontend www\n    use_backend %[req.hdr(host)]\n{BACKEND}"
    findings = findings_of(text)
    assert errors(findings) == []
    assert any("cannot be judged" in w for w in warnings(findings))


def test_a_backend_that_no_frontend_leads_to_is_an_error():
    findings = findings_of(f"{GLOBAL}{HTTP}{BACKEND}")
    assert errors(findings) == ["h.cfg:7 no frontend leads to backend app"]


@pytest.mark.parametrize("half", ["server-state-file /s", ""])
def test_a_state_file_is_recommended_until_both_halves_of_it_are_there(half):
    text = f"{GLOBAL}    {half}\n{HTTP}{FRONTEND}{BACKEND}"
    findings = findings_of(text)
    assert any("a reload forgets the weights" in n for n in of(findings, Severity.NOTE))
    new = mended(text, findings)
    assert (new.count("server-state-file /"), new.count("state-from-file global")) == (1, 1)
    assert any("a reload keeps the weights" in f.what for f in findings_of(new))


def test_the_state_is_loaded_where_the_backend_begins():
    for text in (
        f"{GLOBAL}{HTTP}{FRONTEND}{BACKEND}defaults other\n",
        f"{GLOBAL}frontend www\n    mode http\n    default_backend app\n{BACKEND}",
    ):
        new = mended(text, findings_of(text))
        assert any("a reload keeps the weights" in f.what for f in findings_of(new)), new


def test_more_than_one_process_is_an_error():
    text = f"{GLOBAL}    nbproc 4\n{HTTP}{FRONTEND}{BACKEND}"
    findings = findings_of(text)
    assert len(errors(findings)) == 1
    assert "nbproc" not in mended(text, findings)


# ---------------------------------------------------------------- the log


def in_frontend(*lines: str) -> str:
    frontend = FRONTEND + "".join(f"    {line}\n" for line in lines)
    return f"{GLOBAL}defaults\n    mode http\n{frontend}{BACKEND}"


@pytest.mark.parametrize(
    ("log_format", "found"),
    [
        (LOG_FORMAT, "dial"),
        (LOG_FORMAT.replace("%[var(txn.dial_route)]", "%HM"), "dial"),
        (LOG_FORMAT.replace("%Tc,%Tr", "%Tr,%Tc"), None),
        (LOG_FORMAT.replace("%b,%s", "%s,%b"), None),
        (
            "%ci [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B - - %tsc %ac/%fc/%bc/%sc/%rc 0/0 %r",
            "httplog",
        ),
        ("[%t] %f %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B - - %tsc %ac/%fc/%bc/%sc/%rc 0/0", "httplog"),
        ("[%tr] %ft %b/%s %Tq/%Tw/%Tc/%Tr/%Tt %ST %B - - %tsc %ac/%fc/%bc/%sc/%rc 0/0", None),
        ("%ci %r %ST", None),
        ("", None),
        ("%", None),
    ],
)
def test_a_log_format_is_known_by_what_the_parser_reads_in_it(log_format, found):
    assert reading(log_format) == found


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("option httplog",),
        ("option tcplog", "log /dev/log local0"),
        ("no log", "option httplog"),
        ("log 127.0.0.1:5141 local0 notice", "option httplog"),
        ("log 127.0.0.1:5141 sample 1:10 local0", "option httplog"),
        ("log /dev/log local0", "option httplog", "option dontlog-normal"),
        ("log /dev/log local0", "option httplog clf"),
        ("log /dev/log local0", "option httplog", "http-request set-log-level silent"),
        ("log stdout format raw local0", "option httplog"),
        ("log 10.0.0.5:514 local0", 'log-format "%ci %ST"'),
        ("log ring@nowhere local0", "option httplog"),
    ],
)
def test_a_log_that_does_not_reach_dial_is_mended(lines):
    text = in_frontend(*lines)
    findings = findings_of(text)
    assert errors(findings)
    new = mended(text, findings)
    assert errors(findings_of(new)) == [], new


@pytest.mark.parametrize(
    ("sample", "sampled", "told"),
    [
        ("sample 1:10", 10, None),
        ("sample 1-2,5:30", 10, None),
        ("sample 1:20", 10, "sample drops requests"),
        ("sample 2-3:9", 10, "sample drops requests"),
        ("", 10, "every request is logged, and DIAL's option sampled is 10"),
        ("sample 1:10", 1, "sample drops requests"),
        ("", 1, None),
    ],
)
def test_a_sampled_log_is_right_where_the_option_says_so(sample, sampled, told):
    text = in_frontend(f"log 127.0.0.1:5141 {sample} local0", "option httplog")
    options = {"socket": "/run/h.sock", "log": "syslog://127.0.0.1:5141", "sampled": sampled}
    found = [each for each in errors(findings_of(text, **options)) if "log" in each]
    assert len(found) == (told is not None)
    assert all(told in each for each in found)


@pytest.mark.parametrize(
    ("lines", "log"),
    [
        (("log /dev/log local0", "option httplog"), "file:/var/log/haproxy.log"),
        (("log 127.0.0.1:514 local0 info", "option httpslog"), "file:/var/log/haproxy.log"),
        (("log 127.0.0.1:5141 local0", "option httplog"), "syslog://127.0.0.1:5141"),
        (("log /run/dial/log local0", "option httplog"), "unixgram:/run/dial/log"),
        (
            ("log /dev/log local0 notice", "log /dev/log local1", "option httplog"),
            "file:/var/log/haproxy.log",
        ),
        (
            ("log /dev/log local0", "option httplog", "option dontlognull"),
            "file:/var/log/haproxy.log",
        ),
    ],
)
def test_a_log_that_can_be_read_as_it_is_needs_no_change(lines, log):
    findings = findings_of(in_frontend(*lines))
    assert errors(findings) == []
    assert any(f'log = "{log}"' in f.settings for f in findings)


@pytest.mark.parametrize(
    "log", ["tcp://127.0.0.1:6000", "syslog://127.0.0.1:6000", "unixgram:/run/d/l", "file:/l"]
)
@pytest.mark.parametrize("log_format", ["dial", "httplog"])
def test_dials_options_say_where_the_log_must_go_and_how(log, log_format):
    options = {"socket": "/run/s", "log": log, "log_format": log_format}
    text = in_frontend("log 10.0.0.9:514 local0 warning", "option tcplog")
    findings = findings_of(text, "app", **options)
    new = mended(text, findings)
    assert errors(findings)
    assert errors(findings_of(new, "app", **options)) == [], new


def test_a_log_that_is_passed_on_reaches_where_it_is_passed_to():
    text = in_frontend("log 127.0.0.1:5514 local0", "option httplog") + (
        "log-forward relay\n    dgram-bind 127.0.0.1:5514\n    log 127.0.0.1:5141 local0\n"
    )
    findings = findings_of(text, "app", socket="/run/s", log="syslog://127.0.0.1:5141")
    assert errors(findings) == []


@pytest.mark.parametrize(
    "lines",
    [
        (".if defined(X)", "log /dev/log local0", ".endif", "option httplog"),
        ("log /dev/log local0", ".if defined(X)", "option httplog", ".endif"),
        ('log "$LOGHOST" local0', "option httplog"),
    ],
)
def test_what_hangs_on_a_condition_or_variable_is_doubted_not_judged(lines):
    options = {"socket": "/run/s", "log": "file:/l"}
    findings = findings_of(in_frontend(*lines), "app", **options)
    assert errors(findings) == []
    assert any("cannot be judged, for line" in w for w in warnings(findings))


def test_the_lines_for_one_frontend_are_one_block():
    findings = findings_of(in_frontend())
    (block,) = [f for f in findings if f.severity is Severity.ERROR and "frontend" in f.what]
    expected = [line.strip() for line in snippet().in_frontend.splitlines()]
    assert [line.strip() for line in block.edits[0].insert] == expected


def test_logging_before_the_end_is_warned_of():
    findings = findings_of(in_frontend("log /dev/log local0", "option httplog", "option logasap"))
    assert any("logasap" in w for w in warnings(findings))


# ---------------------------------------------------------------- as it is offered


def test_the_entry_points_module_offers_the_check():
    assert dial_haproxy.check_files is check_files


def test_every_finding_about_a_line_names_a_line_that_is_there():
    for name in (*ACCEPTED, "broken"):
        path = CONFIGS / f"{name}.cfg"
        last = len(path.read_text().split("\n"))
        for finding in check_files([path]) or ():
            if finding.at:
                assert re.fullmatch(rf"{re.escape(str(path))}:\d+", finding.at)
                assert 1 <= int(finding.at.rpartition(":")[2]) <= last
