"""``dial check`` on the load balancer's own files: who is asked, and how it is shown."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from dial.adapter import Edit, Finding, Severity, apply_edits
from dial.cli import check
from dial.errors import SettingError

Dial = Callable[..., tuple[int, str, str]]
Look = Callable[[Sequence[Path], str], tuple[Finding, ...] | None]
Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install adapters of these names, whose modules offer these functions, or nothing."""

    def make(**looks: Look | None) -> None:
        entries = [EntryPoint(name, f"fake_{name}:create", "x") for name in looks]
        for name, look in looks.items():
            module = ModuleType(f"fake_{name}")
            if look is not None:
                vars(module)["check_files"] = look
            monkeypatch.setitem(sys.modules, f"fake_{name}", module)
        monkeypatch.setattr("dial.adapter.entry_points", lambda group: entries)

    return make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lb.cfg"
    path.write_text("one\n  two\nthree\n")
    return path


def finding(path: Path, line: int, *edits: Edit, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(severity, "it is wrong", at=f"{path}:{line}", edits=edits)


# ---------------------------------------------------------------- the settings that go with it


def test_toml_prints_the_settings_and_nothing_else(
    dial: Dial, path: Path, install: Install
) -> None:
    settings = 'service = "app"\n[adapter]\nname = "a"'
    note = Finding(Severity.NOTE, "it goes with it", settings=settings)
    install(a=lambda paths, service: (finding(path, 1, severity=Severity.WARNING), note))
    assert dial("check", str(path), "--toml") == (0, f"{settings}\n", "")
    code, out, _ = dial("check", str(path))
    assert code == 0
    assert 'service = "app"\n         [adapter]\n         name = "a"' in out


def test_toml_of_files_without_settings_says_why(dial: Dial, path: Path, install: Install) -> None:
    install(a=lambda paths, service: (finding(path, 1),))
    code, out, err = dial("check", str(path), "--toml")
    assert (code, out) == (2, "")
    assert err == "dial: --toml: no configuration goes with it: it is wrong\n"


# ---------------------------------------------------------------- who is asked


def test_the_adapter_that_knows_the_files_looks_at_them(
    dial: Dial, path: Path, install: Install
) -> None:
    asked: list[tuple[list[Path], str]] = []

    def look(paths: Sequence[Path], service: str) -> tuple[Finding, ...]:
        asked.append((list(paths), service))
        return (Finding(Severity.OK, "all is well"),)

    install(a=None, b=lambda paths, service: None, c=look)
    code, out, err = dial("check", str(path), str(path.parent), "--service", "app")
    assert (code, err) == (0, "")
    assert asked == [([path, path.parent], "app")]
    assert out.splitlines()[0] == "ok       all is well"


def test_files_that_nobody_knows_are_one_line_with_who_was_asked(
    dial: Dial, path: Path, install: Install
) -> None:
    install(b=lambda paths, service: None, a=None)
    code, out, err = dial("check", str(path))
    assert (code, out) == (2, "")
    assert f"{path}: not the configuration of a load balancer" in err
    assert "(a, b)" in err


def test_an_adapter_that_cannot_be_imported_does_not_stop_the_others(
    dial: Dial, path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(a=None, b=lambda paths, service: (Finding(Severity.OK, "known"),))
    monkeypatch.setitem(sys.modules, "fake_a", None)
    assert dial("check", str(path))[0] == 0
    install(a=None)
    monkeypatch.setitem(sys.modules, "fake_a", None)
    _, _, err = dial("check", str(path))
    assert "a, which cannot be loaded: ModuleNotFoundError" in err


def test_a_file_that_cannot_be_read_is_exit_code_2(
    dial: Dial, path: Path, install: Install
) -> None:
    def look(paths: Sequence[Path], service: str) -> None:
        raise SettingError(f"{paths[0]}: Permission denied")

    install(a=look, b=lambda paths, service: None)
    assert dial("check", str(path)) == (2, "", f"dial: {path}: Permission denied\n")
    install(a=look, b=lambda paths, service: (Finding(Severity.OK, "b can read it"),))
    assert dial("check", str(path))[0] == 0


@pytest.mark.parametrize("name", ["dial.toml", "dial.conf"])
def test_toml_is_the_controllers(dial: Dial, tmp_path: Path, install: Install, name: str) -> None:
    path = tmp_path / name
    path.write_text('service = "web"\n[adapter]\nname = "nobody"\n')
    install()
    code, _, err = dial("check", str(path))
    assert code == 2
    assert "adapter.name = 'nobody': no such adapter" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "CONFIG is missing"),
        (("--config", "dial.toml", "lb.cfg"), "not both"),
        (("--config", "dial.toml", "--service", "app"), "not both"),
    ],
)
def test_either_the_controllers_configuration_or_the_balancers(
    dial: Dial, argv: tuple[str, ...], said: str
) -> None:
    code, out, err = dial("check", *argv)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "data", [b"", b"# nothing\n", b"\xff\xfe", b"[" * 5000, b"a = " + b"[" * 50_000]
)
def test_any_other_bytes_are_offered_to_the_adapters(
    dial: Dial, path: Path, install: Install, data: bytes
) -> None:
    path.write_bytes(data)
    install(a=lambda paths, service: (Finding(Severity.OK, "mine"),))
    assert dial("check", str(path))[0] == 0


# ---------------------------------------------------------------- as text


def test_each_edit_is_shown_as_what_to_type_and_where(
    dial: Dial, path: Path, install: Install
) -> None:
    name = str(path)
    findings = (
        finding(path, 2, Edit(name, 1, 1, ("  TWO",))),
        finding(path, 1, Edit(name, 1, 0, ("  new",)), Edit(name, 2, 1, ("x",))),
        finding(path, 3, Edit(name, 2, 1, ()), Edit(name, 3, 0, ("", "a", "  b"))),
        finding(path, 3, Edit(name, 0, 0, ("top",)), Edit("other.cfg", 6, 2, ())),
    )
    install(a=lambda paths, service: findings)
    code, out, _ = dial("check", name)
    assert code == 1
    assert out.splitlines() == [
        f"error    {path}:2  it is wrong",
        "         replace with: TWO",
        f"error    {path}:1  it is wrong",
        "         add after line 1: new",
        "         replace line 3 with: x",
        f"error    {path}:3  it is wrong",
        "         take it out",
        "         add after line 3:",
        "             a",
        "               b",
        f"error    {path}:3  it is wrong",
        "         add at the top: top",
        "         take out lines 7 to 8 of other.cfg",
        "4 findings: 4 errors, 0 warnings, 0 notes (--diff prints the changes as a patch)",
    ]


def test_a_file_cannot_steer_the_terminal(dial: Dial, path: Path, install: Install) -> None:
    evil = Finding(
        Severity.NOTE,
        "a\x1b[2Jb",
        "c\x9bd\n\x07",
        f"{path}:1",
        (Edit("p\x1b", 1, 1, ("\x1b]0;",)),),
    )
    install(a=lambda paths, service: (evil,))
    _, out, _ = dial("check", str(path))
    assert all(c.isprintable() or c == "\n" for c in out)
    assert "a\\x1b[2Jb" in out


def test_long_text_is_folded_below_its_beginning_and_lines_to_copy_are_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", "dumb")  # a terminal without colours, of 80 columns
    line = "x" * 120
    long = Finding(
        Severity.WARNING, "word " * 30, "other " * 20, "f:1", (Edit("f", 0, 1, (line,)),)
    )
    check._print([long])
    first, second, *rest = out.getvalue().splitlines()
    assert first.startswith("warning  f:1  word")
    assert second.startswith(" " * 14 + "word")
    assert any(text.endswith(line) for text in rest)
    assert all(70 < len(text) <= 80 for text in (first, second))


# ---------------------------------------------------------------- as a patch


def test_diff_prints_the_changes_of_errors_and_warnings_as_a_patch(
    dial: Dial, path: Path, install: Install
) -> None:
    name = str(path)
    findings = (
        finding(path, 2, Edit(name, 1, 1, ("  TWO",))),
        finding(path, 3, Edit(name, 3, 0, ("four",)), severity=Severity.WARNING),
        finding(path, 1, Edit(name, 0, 0, ("not this",)), severity=Severity.NOTE),
    )
    install(a=lambda paths, service: findings)
    code, out, _ = dial("check", name, "--diff")
    assert code == 1
    assert out == (
        f"--- {name}\n+++ {name}\n@@ -1,3 +1,4 @@\n one\n-  two\n+  TWO\n three\n+four\n"
    )


def test_nothing_to_change_is_an_empty_patch(dial: Dial, path: Path, install: Install) -> None:
    install(a=lambda paths, service: (Finding(Severity.OK, "well"),))
    assert dial("check", str(path), "--diff") == (0, "", "")


@pytest.mark.parametrize("data", [b"one\n\xe9\x0b two\n", b"one\ntwo", b"one\r\ntwo\r\n"])
def test_patch_makes_of_the_file_what_the_edits_say(path: Path, data: bytes) -> None:
    if shutil.which("patch") is None:
        pytest.skip("no patch program here")
    path.write_bytes(data)
    edits = [Edit(str(path), 2, 0, ("three",)), Edit(str(path), 0, 1, ("ONE",))]
    diff = check.patch([finding(path, 1, *edits)])
    subprocess.run(["patch", "--binary", str(path)], input=diff, check=True, timeout=30)
    text = data.decode("utf-8", errors="surrogateescape")
    assert path.read_bytes() == apply_edits(text, edits).encode("utf-8", errors="surrogateescape")


# ---------------------------------------------------------------- edits


def test_edits_at_one_place_keep_their_order_and_the_same_one_is_made_once() -> None:
    edits = [Edit("f", 1, 0, ("a",)), Edit("f", 1, 0, ("b",)), Edit("f", 1, 0, ("a",))]
    assert apply_edits("1\n2\n", [*edits, Edit("f", 1, 1, ("II",))]) == "1\na\nb\nII\n"


@pytest.mark.parametrize(
    "edits",
    [
        [Edit("f", 2, 1, ())],
        [Edit("f", 3, 0, ("x",))],
        [Edit("f", -1, 1, ())],
        [Edit("f", 0, 1, ("a",)), Edit("f", 0, 1, ("b",))],
        [Edit("f", 0, 2, ()), Edit("f", 1, 0, ("x",))],
    ],
)
def test_edits_that_cannot_be_made_are_refused(edits: list[Edit]) -> None:
    with pytest.raises(ValueError, match="outside the text, or two"):
        apply_edits("1\n2\n", edits)
