"""Reading haproxy.cfg as HAProxy does: words, sections, inheritance, conditions, several files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.adapter import apply_edits
from dial.errors import SettingError
from dial_haproxy.cfg.lines import ConfigFile, read_files
from dial_haproxy.cfg.sections import Config, parse
from dial_haproxy.cfg.words import UnreadableLineError, split

WRITTEN = {
    "plain": "plain",
    '"a b"': "a b",
    r"a\ b": "a b",
    r"""'a "b" \ c'""": r'a "b" \ c',
    r"""'it'"'"s""": "it's",
    r'''"a 'b' \"c\" \$x"''': """a 'b' "c" $x""",
    "x\\#y#z": "x#y",
    r"\x41\x7e": "A~",
    """a"b c"d'e f'""": "ab cde f",
    r"a\b": r"a\b",
    r'"\x41 \1"': r"A \1",
    r"a\"b": 'a"b',
    "$HOME": "$HOME",
    "${HOME}": "${HOME}",
}


def read(text: str) -> Config:
    return parse([ConfigFile.of("h.cfg", text)])


def values(lines) -> list[str]:
    return [" ".join(line.texts[1:]) for line in lines]


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(("raw", "text"), WRITTEN.items())
def test_quotes_escapes_and_comments(raw, text):
    assert [w.text for w in split(f"  key {raw}", {})] == ["key", text]


def test_haproxy_reads_the_same_words(tmp_path, haproxy_check):
    path = tmp_path / "h.cfg"
    path.write_text("".join(f".notice {raw}\n" for raw in WRITTEN) + "global\n    maxconn 9\n")
    said = re.findall(r"h\.cfg:\d+\]: '(.*)'\.$", haproxy_check(path).stderr, re.MULTILINE)
    assert said == list(WRITTEN.values())


def test_variables_are_unknown_in_double_quotes_only_and_known_after_setenv():
    line = r'bind "${HOST}:$PORT" $PORT "${A-b}"'
    words = split(line, {"HOST": "::1"})
    assert [(w.text, w.variables) for w in words] == [
        ("bind", ()),
        ("::1:$PORT", ("PORT",)),
        ("$PORT", ()),
        ("${A-b}", ("A",)),
    ]
    config = read('global\n  setenv P 9\nfrontend f\n  bind "*:$P"\n')
    assert values(config.sections[1].own("bind")) == ["*:9"]


@pytest.mark.parametrize("raw", ['"open', "it's", r"\xZZ", '"$"', '"${A"'])
def test_what_haproxy_refuses_is_refused(raw, tmp_path, haproxy_check):
    with pytest.raises(UnreadableLineError):
        split(raw, {})
    path = tmp_path / "h.cfg"
    path.write_text(f"global\n    log-tag {raw}\n")
    assert "[ALERT]" in haproxy_check(path).stderr


@given(st.lists(st.text(st.characters(exclude_characters="'\n\0", exclude_categories=["Cs"]))))
def test_single_quotes_keep_everything(texts):
    line = " ".join(f"'{text}'" for text in texts)
    words = split(line, {})
    assert [w.text for w in words] == texts
    assert [line[w.start : w.end] for w in words] == [f"'{text}'" for text in texts]


# ---------------------------------------------------------------- sections


def test_a_proxy_starts_with_the_last_defaults_before_it_named_or_not():
    config = read(
        "defaults\n mode http\ndefaults named\n mode tcp\nfrontend f\n bind :1\n"
        "defaults\nfrontend g\n bind :2\n"
    )
    f, g = config.of_kind("frontend")
    assert (values(f.effective("mode")), values(g.effective("mode"))) == (["tcp"], [])


def test_from_names_the_defaults_and_defaults_inherit_by_it_alone():
    config = read(
        "defaults a\n mode http\n balance first\ndefaults b from a\n balance source\n"
        "defaults c\n mode tcp\nbackend x from b\n balance uri\nbackend y\n"
    )
    x, y = config.of_kind("backend")
    assert values(x.effective("mode")) == ["http"]
    assert values(x.effective("balance")) == ["first", "source", "uri"]
    assert (values(y.effective("mode")), values(y.effective("balance"))) == (["tcp"], [])


CONDITIONS = """\
global
.if 01
.notice "1"
    maxconn 1
.elif 1
.notice "2"
    maxconn 2
.endif
.if
.notice "3"
    maxconn 3
.elif ! 0
.notice "4"
    maxconn 4
.elif 1
.notice "5"
    maxconn 5
.else
.notice "6"
    maxconn 6
.endif
.if 0
  .if 1
.notice "7"
    maxconn 7
  .else
.notice "8"
    maxconn 8
  .endif
.else
  .if 7
.notice "9"
    maxconn 9
  .endif
.endif
"""


def test_constant_conditions_choose_the_branches_that_haproxy_takes(tmp_path, haproxy_check):
    path = tmp_path / "h.cfg"
    path.write_text(CONDITIONS)
    taken = re.findall(r"\]: '(\d)'", haproxy_check(path).stderr)
    config = read(CONDITIONS)
    assert values(config.in_global("maxconn")) == taken == ["1", "4", "9"]
    assert not any(line.doubt for line in config.in_global("maxconn"))


def test_other_conditions_leave_every_branch_in_doubt():
    config = read(
        "global\n.if feature(OPENSSL)\n a\n.elif 1\n b\n.else\n c\n.endif\n.if defined(X)\n"
        " d\n.else\n e\n.endif\n f\n"
    )
    doubts = {line.texts[0]: line.doubt for line in config.sections[0].lines}
    assert list(doubts) == ["a", "b", "d", "e", "f"]  # after a true .elif, .else never holds
    assert [bool(doubt) for doubt in doubts.values()] == [True, True, True, True, False]
    assert "'.if feature(OPENSSL)' of line 2" in doubts["a"]


def test_lines_of_a_section_under_the_same_condition_hold_where_it_does():
    config = read(".if defined(X)\nbackend b\n mode http\n.endif\n")
    (section,) = config.sections
    assert section.certain(section.lines[0])


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("mode http\nglobal\n", "h.cfg:1", "'mode' stands before any section"),
        ("global\n.endif\n", "h.cfg:2", "without '.if'"),
        ("global\n.if 1\n", "h.cfg:2", "no '.endif'"),
        ("backend\n", "h.cfg:1", "needs a name"),
        ("backend b from nowhere\n", "h.cfg:1", "no 'defaults nowhere'"),
    ],
)
def test_a_line_that_cannot_be_read_is_listed_with_the_reason(text, at, why):
    (wrong,) = read(text).unreadable
    assert wrong.at == at
    assert why in wrong.why


def test_lines_behind_an_unreadable_header_belong_to_no_other_section():
    config = read("backend a\nbackend\n balance first\n")
    assert config.sections[0].lines == []


# ---------------------------------------------------------------- files


def test_a_directory_stands_for_its_cfg_files_by_name(tmp_path):
    (tmp_path / "conf.d").mkdir()
    for name in ("20-b.cfg", "10-a.cfg", ".hidden.cfg", "notes.txt"):
        (tmp_path / "conf.d" / name).write_text(f"# {name}\n")
    (tmp_path / "main.cfg").write_text("global\n")
    files = read_files([tmp_path / "main.cfg", tmp_path / "conf.d"])
    assert [Path(f.path).name for f in files] == ["main.cfg", "10-a.cfg", "20-b.cfg"]


def test_defaults_go_on_in_the_next_file_and_sections_do_not():
    config = parse(
        [
            ConfigFile.of("1.cfg", "defaults\n mode http\n"),
            ConfigFile.of("2.cfg", " balance first\nbackend b\n"),
        ]
    )
    assert values(config.of_kind("backend")[0].effective("mode", "balance")) == ["http"]
    assert config.unreadable[0].at == "2.cfg:1"


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("none.cfg", None, "No such file"),
        ("nul.cfg", b"global\n\0\n", "NUL"),
        ("empty", "directory", r"without any \*\.cfg"),
    ],
)
def test_what_cannot_be_read_is_a_setting_error_with_the_path(tmp_path, name, data, why):
    path = tmp_path / name
    if data == "directory":
        path.mkdir()
    elif data is not None:
        path.write_bytes(data)
    with pytest.raises(SettingError, match=f"{name}: .*{why}"):
        read_files([path])


# ---------------------------------------------------------------- edits


def test_an_edit_keeps_indentation_comment_and_quotes():
    text = "global\n\tstats socket '/run/a b' level user # ours\n"
    line = read(text).in_global("stats")[0]
    edit = line.with_words(without=(3, 4), added=("level", "admin"))
    assert apply_edits(text, [edit]) == ("global\n\tstats socket '/run/a b' level admin # ours\n")


def test_added_statements_are_indented_as_their_section_is():
    text = "global\n\tdaemon\nbackend b\n"
    config = read(text)
    edits = [config.sections[0].starts_with("maxconn 1"), config.sections[1].starts_with("x", "y")]
    assert apply_edits(text, edits) == "global\n\tmaxconn 1\n\tdaemon\nbackend b\n    x\n    y\n"
