"""Which calls wait: standard functions, and functions that call one on every path.

Rule
    ``isWrapper`` of Algorithm 2: the block of the waiting call post-dominates the entry.  On a
    syntax tree that is a question with three answers for each statement, asked in order: has a
    waiting call been made for sure by where it ends, by where it returns, by where it breaks?
    A path that cannot go on (``exit``, ``abort``) needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from clang.cindex import Cursor, CursorKind

from dial_pbox.find.source import Program, operator, text

WAIT_FUNCTIONS = frozenset(
    {
        *("semop", "semtimedop", "sem_wait", "sem_timedwait", "sem_clockwait"),
        *("pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait"),
        *("cnd_wait", "cnd_timedwait", "thrd_sleep", "thrd_yield"),
        *("pthread_yield", "sched_yield", "sleep", "usleep", "nanosleep", "clock_nanosleep"),
        *("apr_sleep", "apr_thread_cond_wait", "apr_thread_cond_timedwait", "apr_thread_yield"),
        *("g_usleep", "g_cond_wait", "g_cond_wait_until"),
    }
)
"""The paper's list (semop, pthread_cond_wait, pthread_yield, apr_sleep, sleep) and its relatives.
``poll`` and its like wait for the outside, mostly; a program that waits in them names them."""

_NO_RETURN = frozenset({"exit", "_exit", "_Exit", "abort", "quick_exit", "longjmp", "siglongjmp"})


@dataclass(frozen=True, slots=True)
class _Flow:
    """Whether a waiting call has been made for sure; ``None`` where no path comes along."""

    falls: bool | None
    returns: bool | None = None
    breaks: bool | None = None
    continues: bool | None = None


_DEAD = _Flow(None)


def _both(one: bool | None, other: bool | None) -> bool | None:
    """Where two paths meet: for sure only if on both."""
    if one is None:
        return other
    return one if other is None else one and other


def wrappers(program: Program, waits: Collection[str]) -> Mapping[str, str]:
    """Functions that wait whenever they are called.

    Parameters
    ----------
    program
        All functions.
    waits
        Names of functions that wait.

    Returns
    -------
    Mapping
        Unified symbol to the name of the standard function at the end of the chain.
    """
    found: dict[str, str] = {}
    while True:
        new = {}
        for usr, function in program.functions.items():
            if usr in found or function.name in waits:
                continue
            paths = _Paths(found, waits)
            flow = paths.of(function.body, waited=False)
            if _both(flow.falls, flow.returns) and paths.last is not None:
                new[usr] = paths.last
        if not new:
            return found
        found |= new


def waits_for(call: Cursor, found: Mapping[str, str], waits: Collection[str]) -> str | None:
    """The standard function that a call ends in, ``None`` if it does not wait."""
    name = str(call.spelling)
    if name in waits:
        return name
    return found.get(call.referenced.get_usr()) if call.referenced is not None else None


_LEAVING = {
    CursorKind.RETURN_STMT: "returns",
    # Conservative: nothing more is waited for on the way that a goto takes.
    CursorKind.GOTO_STMT: "returns",
    CursorKind.INDIRECT_GOTO_STMT: "returns",
    CursorKind.BREAK_STMT: "breaks",
    CursorKind.CONTINUE_STMT: "continues",
}
"""Statements after which the next one is not run, and where to: a field of :class:`_Flow`."""

_Follow = Callable[["_Paths", Cursor, list[Cursor], bool], _Flow]


class _Paths:
    """Follows every path through a statement."""

    def __init__(self, found: Mapping[str, str], waits: Collection[str]) -> None:
        self._found = found
        self._waits = waits
        self.last: str | None = None
        """The standard function behind the last waiting call that was met."""

    def of(self, node: Cursor, *, waited: bool) -> _Flow:
        """What is sure after ``node``, when ``waited`` was before it."""
        kind, children = node.kind, list(node.get_children())
        follow = self._FOLLOW.get(kind)
        if follow is not None and children:
            return follow(self, node, children, waited)
        if kind in _LEAVING:
            return _Flow(None, **{_LEAVING[kind]: self._expression(node, waited)})
        if kind is CursorKind.CALL_EXPR and node.spelling in _NO_RETURN:
            return _DEAD
        return _Flow(self._expression(node, waited))

    def _sequence(self, _: Cursor, statements: list[Cursor], waited: bool) -> _Flow:
        falls: bool | None = waited
        returns = breaks = continues = None
        for statement in statements:
            # What follows a statement that never ends is reached by a label, if at all.
            flow = self.of(statement, waited=bool(falls))
            returns, breaks = _both(returns, flow.returns), _both(breaks, flow.breaks)
            continues = _both(continues, flow.continues)
            falls = flow.falls
        return _Flow(falls, returns, breaks, continues)

    def _branches(self, _: Cursor, children: list[Cursor], waited: bool) -> _Flow:
        after = self._expression(children[0], waited)
        then = self.of(children[1], waited=after) if len(children) > 1 else _Flow(after)
        other = self.of(children[2], waited=after) if len(children) > 2 else _Flow(after)
        return _Flow(
            _both(then.falls, other.falls),
            _both(then.returns, other.returns),
            _both(then.breaks, other.breaks),
            _both(then.continues, other.continues),
        )

    def _loop(self, node: Cursor, children: list[Cursor], waited: bool) -> _Flow:
        if node.kind is CursorKind.DO_STMT:
            body = self.of(children[0], waited=waited)
            end = _both(body.falls, body.continues)
            falls = None if end is None else self._expression(children[1], end)
            return _Flow(_both(falls, body.breaks), body.returns)
        condition = loop_condition(node)
        if condition is None or _always(condition):
            # Left by a break alone, and its body is run at least once.
            body = self.of(children[-1], waited=waited)
            return _Flow(body.breaks, body.returns)
        after = self._expression(condition, waited)
        body = self.of(children[-1], waited=after)
        return _Flow(_both(after, body.breaks), body.returns)

    def _switch(self, _: Cursor, children: list[Cursor], waited: bool) -> _Flow:
        after = self._expression(children[0], waited) if children else waited
        body = self.of(children[-1], waited=after) if len(children) > 1 else _Flow(after)
        # No case may apply, so what a case does is not sure after it.
        falls = after or _both(_both(body.falls, body.breaks), after)
        return _Flow(falls, body.returns, continues=body.continues)

    def _labelled(self, _: Cursor, children: list[Cursor], waited: bool) -> _Flow:
        return self.of(children[-1], waited=waited)

    _FOLLOW: ClassVar[Mapping[CursorKind, _Follow]] = {
        CursorKind.COMPOUND_STMT: _sequence,
        CursorKind.IF_STMT: _branches,
        CursorKind.WHILE_STMT: _loop,
        CursorKind.DO_STMT: _loop,
        CursorKind.FOR_STMT: _loop,
        CursorKind.SWITCH_STMT: _switch,
        CursorKind.LABEL_STMT: _labelled,
        CursorKind.CASE_STMT: _labelled,
        CursorKind.DEFAULT_STMT: _labelled,
    }

    def _expression(self, node: Cursor, waited: bool) -> bool:
        """Whether evaluating ``node`` surely makes a waiting call."""
        children = list(node.get_children())
        if node.kind is CursorKind.CALL_EXPR:
            standard = waits_for(node, self._found, self._waits)
            if standard is not None:
                self.last = standard
                return True
        if node.kind is CursorKind.CONDITIONAL_OPERATOR and len(children) == 3:
            first = self._expression(children[0], waited)
            return bool(
                _both(self._expression(children[1], first), self._expression(children[2], first))
            )
        if node.kind is CursorKind.BINARY_OPERATOR and len(children) == 2:
            # Of && and || the right side may be left out; its sign costs reading tokens.
            left = self._expression(children[0], waited)
            right = self._expression(children[1], left)
            return right if right == left else right and not _short_circuit(node)
        for child in children:
            waited = self._expression(child, waited)
        return waited


def _short_circuit(node: Cursor) -> bool:
    return operator(node) in ("&&", "||", "")


def _always(condition: Cursor) -> bool:
    """Whether a condition is a constant other than 0."""
    return text(condition).strip("()").upper() in ("1", "TRUE")


def loop_condition(loop: Cursor) -> Cursor | None:
    """The condition of a loop; ``None`` of ``for (;;)``."""
    children = list(loop.get_children())
    if loop.kind is CursorKind.WHILE_STMT:
        return children[0]
    if loop.kind is CursorKind.DO_STMT:
        return children[1]
    # libclang leaves out the parts of a for that are not there: the semicolons tell.
    semicolons, depth = [], 0
    for token in loop.get_tokens():
        depth += {"(": 1, ")": -1}.get(token.spelling, 0)
        if token.spelling == ";" and depth == 1:
            semicolons.append(token.location.offset)
        if len(semicolons) == 2:
            break
    if len(semicolons) < 2:
        return None
    first, second = semicolons
    within = (c for c in children[:-1] if first < c.extent.start.offset < second)
    return next(within, None)
