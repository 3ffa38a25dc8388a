"""From the files of an HAProxy configuration to its sections, and what each inherits.

What HAProxy does and is followed here (configuration manual 2 and 4; its ``cfgparse.c``):

- Files are read one after the other, a directory's ``*.cfg`` files in the order of their
  names, as if they were one; but no section goes on in the next file.
- A proxy starts with what the last ``defaults`` section before it says, named or not, or the
  one that it names with ``from``.  A ``defaults`` section inherits only with ``from``.
- ``.if``, ``.elif``, ``.else``, ``.endif`` choose lines.  Constants are judged; anything
  else depends on HAProxy's version, build or environment.  Lines of such a branch are kept,
  and each says which condition it hangs on, so that nobody takes them for granted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dial.adapter import Edit
from dial_haproxy.cfg.lines import ConfigFile, Line
from dial_haproxy.cfg.words import UnreadableLineError, Word, split
from dial_haproxy.options import NAME

PROXIES = ("frontend", "backend", "listen")

_OTHER_SECTIONS = (
    *("ring", "log-forward", "log-profile", "peers", "mailers", "resolvers", "userlist"),
    *("cache", "program", "http-errors", "fcgi-app", "crt-store", "traces", "namespace_list"),
    "acme",
)
_SECTIONS = frozenset(("global", "defaults", *PROXIES, *_OTHER_SECTIONS))
_INDENT = "    "


@dataclass(slots=True)
class Section:
    """One section, from its header to the next one's."""

    kind: str
    name: str
    header: Line
    defaults: Section | None = None
    """What it starts with."""
    lines: list[Line] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()

    def own(self, *keywords: str) -> list[Line]:
        """Its own statements of these keywords, in order."""
        return [line for line in self.lines if line.texts[0] in keywords]

    def effective(self, *keywords: str) -> list[Line]:
        """Inherited statements of these keywords, then its own."""
        chain = [self]
        while chain[-1].defaults is not None:
            chain.append(chain[-1].defaults)
        return [line for section in reversed(chain) for line in section.own(*keywords)]

    def holds(self, line: Line) -> bool:
        """Whether a statement holds wherever this section does."""
        return line.condition in ("", self.header.condition)

    def certain(self, line: Line) -> bool:
        """Whether it does, and what it says is known."""
        return self.holds(line) and not line.variables

    def has(self, line: Line) -> bool:
        """Whether a statement is its own, rather than inherited from before."""
        return line.path == self.header.path and line.number > self.header.number

    def starts_with(self, *statements: str) -> Edit:
        """Put statements right behind the header, indented as the section is."""
        return self.header.followed_by(*self.indented(*statements))

    def instead(self, line: Line | None, statement: str) -> Edit:
        """Write a statement in the place of its own line; before all others where it has none."""
        own = line is not None and self.has(line)
        return line.replaced(statement) if line and own else self.starts_with(statement)

    def indented(self, *statements: str) -> tuple[str, ...]:
        """Statements indented as the section's first one is."""
        indent = _INDENT
        if self.lines:
            raw = self.lines[0].raw
            indent = raw[: len(raw) - len(raw.lstrip(" \t"))] or _INDENT
        return tuple(f"{indent}{statement}" for statement in statements)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that HAProxy refuses, and why."""

    at: str
    why: str


@dataclass(slots=True)
class Config:
    """All that the files say."""

    files: tuple[ConfigFile, ...]
    sections: list[Section] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)

    @property
    def is_haproxys(self) -> bool:
        """Whether this is an HAProxy configuration at all."""
        return any(_is_telling(section) for section in self.sections)

    def of_kind(self, *kinds: str) -> list[Section]:
        """Sections of these kinds, in order."""
        return [section for section in self.sections if section.kind in kinds]

    def in_global(self, *keywords: str) -> list[Line]:
        """Statements of the ``global`` sections, of which there may be several."""
        return [line for section in self.of_kind("global") for line in section.own(*keywords)]


def _is_telling(section: Section) -> bool:
    """Whether no other kind of file has a line like this header."""
    words = len(section.header.words)
    if section.kind in PROXIES:
        return words in (2, 4) and NAME.fullmatch(section.name) is not None
    return words == 1 and section.kind in ("global", "defaults")


def parse(files: Sequence[ConfigFile]) -> Config:
    """Take the files apart; what cannot be read is listed, and the rest goes on."""
    config = Config(tuple(files))
    reader = _Reader(config)
    for file in files:
        reader.read(file)
    return config


@dataclass(slots=True)
class _Branch:
    """One ``.if`` that is open."""

    line: int
    text: str
    holds: bool | None
    """Whether its present branch does; ``None`` where it cannot be judged."""
    held: bool | None
    """Whether that one or an earlier one does."""


class _Reader:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._environment: dict[str, str] = {}
        self._last_defaults: Section | None = None
        self._named: dict[str, Section] = {}
        self._branches: list[_Branch] = []
        self._section: Section | None = None

    def read(self, file: ConfigFile) -> None:
        self._section = None
        self._branches = []
        for number, raw in enumerate(file.lines, start=1):
            try:
                words = split(raw, self._environment)
                if not words:
                    continue
                if words[0].text.startswith("."):
                    self._directive(words, number)
                elif not any(branch.holds is False for branch in self._branches):
                    self._statement(self._line(file.path, number, raw, words))
            except UnreadableLineError as error:
                self._config.unreadable.append(Unreadable(f"{file.path}:{number}", str(error)))
        for branch in self._branches:
            self._config.unreadable.append(
                Unreadable(f"{file.path}:{branch.line}", f"'{branch.text}' has no '.endif'")
            )

    def _line(self, path: str, number: int, raw: str, words: tuple[Word, ...]) -> Line:
        negated = words[0].text in ("no", "default") and len(words) > 1
        conditions = [b for b in self._branches if b.holds is None]
        condition = " and ".join(f"'{b.text}' of line {b.line}" for b in conditions)
        words = words[1:] if negated else words
        texts = tuple(word.text for word in words)
        return Line(path, number, raw, words, texts, negated, condition)

    def _statement(self, line: Line) -> None:
        keyword = line.texts[0]
        if keyword in _SECTIONS:
            self._open(line)
        elif self._section is None:
            raise UnreadableLineError(f"'{keyword}' stands before any section")
        else:
            self._section.lines.append(line)
            if line.says("setenv") and len(line.words) == 3 and not line.doubt:
                self._environment[line.texts[1]] = line.texts[2]

    def _open(self, line: Line) -> None:
        kind, *arguments = line.texts
        name = arguments[0] if arguments and arguments[0] != "from" else ""
        section = self._section = Section(kind, name, line)
        if kind in PROXIES:
            if not NAME.fullmatch(name):
                raise UnreadableLineError(f"'{kind}' needs a name, of letters, digits and _ . : -")
            section.defaults = self._last_defaults
        if kind in (*PROXIES, "defaults"):
            parent = line.after_word("from", first=1)
            if parent is not None:
                if parent not in self._named:
                    raise UnreadableLineError(f"there is no 'defaults {parent}' before it")
                section.defaults = self._named[parent]
        if kind == "defaults":
            self._last_defaults = section
            self._named[name] = section
        self._config.sections.append(section)

    def _directive(self, words: tuple[Word, ...], number: int) -> None:
        name = words[0].text
        text = " ".join(word.text for word in words)
        if name == ".if":
            holds = _judge(words[1:])
            self._branches.append(_Branch(number, text, holds, holds))
            return
        if name not in (".elif", ".else", ".endif"):
            return  # .notice, .warning, .alert and .diag say something and change nothing
        if not self._branches:
            raise UnreadableLineError(f"'{name}' without '.if'")
        branch = self._branches[-1]
        if name == ".endif":
            self._branches.pop()
            return
        wanted = _judge(words[1:]) if name == ".elif" else True
        if branch.held or wanted is False:
            branch.holds = False
        else:
            branch.holds = None if branch.held is None else wanted
        # Whether any branch up to this one holds; what is known of one is known of the rest.
        if branch.held or wanted:
            branch.held = True
        elif wanted is None:
            branch.held = None
        branch.line, branch.text = number, text


def _judge(words: Sequence[Word]) -> bool | None:
    """Whether a condition holds; ``None`` where only HAProxy itself can tell."""
    text = "".join(word.text for word in words)
    number = text.removeprefix("!")
    if not number:
        return False
    if not re.fullmatch(r"\d+", number, re.ASCII):
        return None
    return bool(number.strip("0")) != text.startswith("!")
