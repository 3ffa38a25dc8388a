"""Files of an HAProxy configuration and their lines, each of which can be changed.

A change keeps what it is not about: indentation, comment, and the quoting of words that stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dial.adapter import Edit
from dial.errors import SettingError
from dial_haproxy.cfg.words import BLANKS, Word

MAX_BYTES = 16 * 1024 * 1024
"""Of one file; beyond any real one, and short of what a device file would give."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One file and its lines, without their line breaks."""

    path: str
    lines: tuple[str, ...]
    is_cut_off: bool = False
    """Whether its last line has no line break: HAProxy takes that for a file cut short."""

    @classmethod
    def of(cls, path: str, text: str) -> ConfigFile:
        """Split at line feeds alone, as HAProxy does."""
        *lines, rest = text.split("\n")
        return cls(path, tuple([*lines, rest] if rest else lines), bool(rest))

    def appended(self, *lines: str) -> Edit:
        """Put lines behind the last one."""
        return Edit(self.path, len(self.lines), 0, lines)


@dataclass(frozen=True, slots=True)
class Line:
    """One statement.

    Attributes
    ----------
    path, number, raw
        Where it stands, counted from 1, and as it is written.
    words
        Its words, without a leading ``no`` or ``default``.
    texts
        Their values.
    negated
        Whether there was one.
    condition
        The ``.if`` it hangs on, where that cannot be judged; else empty.
    """

    path: str
    number: int
    raw: str
    words: tuple[Word, ...]
    texts: tuple[str, ...]
    negated: bool = False
    condition: str = ""

    @property
    def at(self) -> str:
        """File and line, as compilers print them."""
        return f"{self.path}:{self.number}"

    @property
    def statement(self) -> str:
        """As it is written, without indentation and comment."""
        return self.raw[self._start : self.words[-1].end]

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables in it whose value is not known."""
        return tuple(name for word in self.words for name in word.variables)

    @property
    def doubt(self) -> str:
        """Why it cannot be judged; empty where it can."""
        if self.condition:
            return f"line {self.number} holds only under {self.condition}"
        if self.variables:
            names = ", ".join(dict.fromkeys(self.variables))
            return f"line {self.number} depends on the environment variable {names}"
        return ""

    def says(self, *texts: str) -> bool:
        """Whether it begins with these words and is not negated."""
        return not self.negated and self.texts[: len(texts)] == texts

    def after_word(self, text: str, first: int = 0) -> str | None:
        """The word that follows ``text``, looked for from word ``first`` on."""
        texts = self.texts
        if text in texts[first:-1]:
            return texts[texts.index(text, first) + 1]
        return None

    def replaced(self, statement: str) -> Edit:
        """Write another statement in its place; indentation and comment stay."""
        rest = self.raw[self.words[-1].end :]
        written = f"{self.raw[: self._start]}{statement}{rest}".rstrip(BLANKS)
        return Edit(self.path, self.number - 1, 1, (written,))

    def with_words(self, *, without: Iterable[int] = (), added: Sequence[str] = ()) -> Edit:
        """Leave out some words and write others behind the last; the rest stays as written."""
        left_out = set(without)
        kept = [w for number, w in enumerate(self.words) if number not in left_out]
        prefix = self.raw[self._start : self.words[0].start]  # "no " of a negated line
        written = [self.raw[word.start : word.end] for word in kept]
        return self.replaced(prefix + " ".join([*written, *added]))

    def removed(self) -> Edit:
        """Take the line out."""
        return Edit(self.path, self.number - 1, 1, ())

    def followed_by(self, *lines: str) -> Edit:
        """Put lines behind it."""
        return Edit(self.path, self.number, 0, lines)

    @property
    def _start(self) -> int:
        return len(self.raw) - len(self.raw.lstrip(BLANKS))


def read_files(paths: Iterable[Path]) -> tuple[ConfigFile, ...]:
    """Read files, and of directories what HAProxy reads of them.

    Raises
    ------
    SettingError
        If one cannot be read, is no text, or if there is none.
    """
    files = []
    for path in paths:
        try:
            inside = sorted(path.glob("*.cfg")) if path.is_dir() else [path]
            found = [f for f in inside if f == path or not f.name.startswith(".")]
            if not found:
                raise SettingError(f"{path}: a directory without any *.cfg file")
            files += [ConfigFile.of(str(f), _text(f)) for f in found]
        except (OSError, ValueError) as error:
            raise SettingError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return tuple(files)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise SettingError(f"{path}: more than {MAX_BYTES >> 20} MiB: this is no configuration")
    if b"\0" in data:
        raise SettingError(f"{path}: holds NUL bytes: this is no text")
    # Not strict: a comment in another encoding is none of our business, and must survive an edit.
    return data.decode("utf-8", errors="surrogateescape")
