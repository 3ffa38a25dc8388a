"""Processes by the ids that they have for themselves: what is read for it, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from dial.agent.files import Tree, Unavailable
from dial.pbox.writers import Writers


class Counted(Tree):
    """A tree of some processes that counts the walks through it."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.root = root
        self.walks = 0

    def names(self, path: str) -> list[str]:
        self.walks += 1
        return super().names(path)

    def put(self, id_here: int, start: int, *ids: int) -> Path:
        directory = self.root / "proc" / str(id_here)
        directory.mkdir(parents=True, exist_ok=True)
        fields = ["S", *["0"] * 18, str(start), "0"]
        (directory / "stat").write_text(f"{id_here} (postgres) {' '.join(fields)}\n")
        shown = "\t".join(map(str, (id_here, *ids)))
        (directory / "status").write_text(f"Name:\tpostgres\nNSpid:\t{shown}\n")
        return directory


@pytest.fixture
def tree(tmp_path: Path) -> Counted:
    tree = Counted(tmp_path)
    tree.put(1, 1)
    return tree


def test_a_process_of_our_own_namespace_needs_no_walk(tree: Counted) -> None:
    tree.put(50, 700)
    writers = Writers(tree)
    assert writers.alive({(50, 700)}) == {(50, 700)}
    assert tree.walks == 0


def test_of_nested_namespaces_the_innermost_counts(tree: Counted) -> None:
    tree.put(4711, 700, 30, 7)
    writers = Writers(tree)
    assert writers.alive({(7, 700), (30, 700)}) == {(7, 700)}


def test_what_was_found_or_has_gone_is_not_looked_for_again(tree: Counted) -> None:
    found = tree.put(4711, 700, 7)
    tree.put(4712, 800, 8)
    writers = Writers(tree)
    for _ in range(3):
        assert writers.alive({(7, 700), (8, 800), (9, 900)}) == {(7, 700), (8, 800)}
    assert tree.walks == 1
    (found / "stat").write_text("4711 (another) S " + "0 " * 18 + "999 0\n")  # its id used again
    for _ in range(3):
        assert writers.alive({(7, 700), (8, 800)}) == {(8, 800)}
    assert tree.walks == 1
    tree.put(4713, 950, 10)
    assert writers.alive({(8, 800), (10, 950)}) == {(8, 800), (10, 950)}
    assert tree.walks == 2


def test_none_of_some_is_not_seen_and_of_none_none_lives(tree: Counted) -> None:
    writers = Writers(tree)
    with pytest.raises(Unavailable, match="none of its processes"):
        writers.alive({(7, 700)})
    assert writers.alive(()) == frozenset()


@pytest.mark.parametrize(
    ("stat", "status"),
    [
        ("", ""),
        ("4711 (x", "NSpid:"),
        ("4711 (x) S 0", "\nNSpid:\tx\n"),
        ("4711 (x) " + "0 " * 19 + "700", "no such line"),
        ("4711 (x) " + "0 " * 19 + "700", "\nNSpid:\t\n"),
    ],
)
def test_whatever_proc_holds_is_another_process_or_none(
    tree: Counted, stat: str, status: str
) -> None:
    odd = tree.put(4711, 0)
    (odd / "stat").write_text(stat)
    (odd / "status").write_text(status)
    tree.put(60, 800)
    assert Writers(tree).alive({(7, 700), (60, 800)}) == {(60, 800)}
