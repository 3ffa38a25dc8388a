"""Which variables that activities share an expression reads.

Shared is what another thread or process can reach: a global or static variable that is neither
constant nor of one thread alone, a member or an element reached through a pointer, and a local
whose address was put somewhere (a request in a queue, whose sender waits for it).  A pointer may
well lead to something private (a connection's own buffer): the tool proposes, and a person
decides.  Not shared: other locals, parameters themselves, members of a local structure.
"""

from __future__ import annotations

from collections.abc import Iterator

from clang.cindex import Cursor, CursorKind, StorageClass, TLSKind, TypeKind

from dial_pbox.find.source import Function, Program, find, is_pointer, named, operator, text, walk

_DEPTH = 2
"""Calls that a condition is followed into: ``lock_taken(l)``, and what that calls."""

_ERRNO = "*__errno_location()"
"""What ``errno`` is a macro for: of each thread its own."""

_WRITES = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})


def shared_variables(
    condition: Cursor, loop: Cursor, body: Cursor, program: Program, depth: int = _DEPTH
) -> list[str]:
    """Shared variables that decide a condition, as they are written, each once.

    Parameters
    ----------
    condition
        Of the loop.
    loop
        In which locals of the condition may be set from shared variables.
    body
        Of the function that it is in.
    program
        For the functions that the condition calls.
    depth
        How deep to look into these.
    """
    names: dict[str, None] = {}
    for node in walk(condition):
        names |= dict.fromkeys(_reads(node))
        if _is_local(node) and _given_away(node.referenced, body):
            names[node.spelling] = None
        if node.kind is CursorKind.CALL_EXPR and depth:
            names |= dict.fromkeys(_of_answer(node, program, depth))
        if _is_local(node) and depth:
            for value in _values(node.referenced, loop):
                # Of the value its own reads only: locals of locals lead everywhere.
                for part in walk(value):
                    names |= dict.fromkeys(_reads(part))
                    if part.kind is CursorKind.CALL_EXPR:
                        names |= dict.fromkeys(_of_answer(part, program, depth))
    # Of ``pool->free`` and ``pool`` the former says it all.
    told = [name for name in names if name]
    return [name for name in told if not any(_is_base(name, other) for other in told)]


def _is_base(name: str, other: str) -> bool:
    return other.startswith((f"{name}->", f"{name}.", f"{name}["))


def _reads(node: Cursor) -> Iterator[str]:
    """The shared variable that a node is, if it is one."""
    if node.kind is CursorKind.DECL_REF_EXPR and is_shared(node.referenced):
        yield node.spelling
    elif node.kind is CursorKind.MEMBER_REF_EXPR and through_pointer(node):
        yield named(node)
    elif node.kind is CursorKind.ARRAY_SUBSCRIPT_EXPR:
        base = next(iter(node.get_children()))
        if is_pointer(base) and not _local_array(base):
            yield named(node)
    elif node.kind is CursorKind.UNARY_OPERATOR and text(node, 1) == "*":
        name = named(node)
        if name != _ERRNO:
            yield name


def is_shared(variable: Cursor | None) -> bool:
    """Whether a declaration is of a variable that threads share."""
    if variable is None or variable.kind is not CursorKind.VAR_DECL:
        return False
    outside = variable.semantic_parent.kind is CursorKind.TRANSLATION_UNIT
    lasting = outside or variable.storage_class is StorageClass.STATIC
    constant = variable.type.is_const_qualified()
    return lasting and not constant and variable.tls_kind is TLSKind.NONE


def through_pointer(member: Cursor) -> bool:
    """Whether a member expression goes through a pointer, or begins at a shared variable."""
    base = next(iter(member.get_children()), None)
    if base is None:
        return False
    if is_pointer(base):
        return True
    inner = next(find(base, lambda c: c.kind in _NAMES), None)
    if inner is None:
        return False
    if inner.kind is CursorKind.MEMBER_REF_EXPR:
        return through_pointer(inner)
    return is_shared(inner.referenced)


_NAMES = frozenset({CursorKind.MEMBER_REF_EXPR, CursorKind.DECL_REF_EXPR})


def _local_array(base: Cursor) -> bool:
    named = next(find(base, lambda c: c.kind in _NAMES), None)
    if named is None or named.kind is CursorKind.MEMBER_REF_EXPR:
        return named is not None and not through_pointer(named)
    declared = named.referenced
    array = declared is not None and declared.type.kind in (
        TypeKind.CONSTANTARRAY,
        TypeKind.VARIABLEARRAY,
    )
    return array and not is_shared(declared)


def _is_local(node: Cursor) -> bool:
    declared = node.referenced
    return (
        node.kind is CursorKind.DECL_REF_EXPR
        and declared is not None
        and declared.kind is CursorKind.VAR_DECL
        and not is_shared(declared)
    )


def _given_away(variable: Cursor, body: Cursor) -> bool:
    """Whether a local's address is put into something that others may reach."""
    for node in find(body, lambda c: c.kind is CursorKind.BINARY_OPERATOR):
        children = list(node.get_children())
        given = children[-1] if len(children) == 2 else node
        if given.kind is CursorKind.UNARY_OPERATOR and text(given) == f"&{variable.spelling}":
            return True
    return False


def _values(variable: Cursor, loop: Cursor) -> Iterator[Cursor]:
    """What a local variable is set to within a loop."""
    usr = variable.get_usr()
    for node in find(loop, lambda c: c.kind in (CursorKind.BINARY_OPERATOR, CursorKind.VAR_DECL)):
        children = list(node.get_children())
        if node.kind is CursorKind.VAR_DECL:
            if node.get_usr() == usr and children:
                yield children[-1]
        elif len(children) == 2 and operator(node) == "=":
            target = children[0].referenced
            if target is not None and target.get_usr() == usr:
                yield children[1]


def _of_answer(call: Cursor, program: Program, depth: int) -> Iterator[str]:
    """What the answer of a function rests on: its return values and the branches it takes."""
    function = program.called(call)
    if function is None:
        return
    for node in find(function.body, _decides_an_answer):
        part = next(iter(node.get_children()), None)
        if part is not None:
            for name in shared_variables(part, function.body, function.body, program, depth - 1):
                yield f"{function.name}(): {name}" if "(): " not in name else name


def _decides_an_answer(node: Cursor) -> bool:
    if node.kind is CursorKind.IF_STMT:
        branches = list(node.get_children())[1:]
        return any(c.kind is CursorKind.RETURN_STMT for branch in branches for c in walk(branch))
    return node.kind is CursorKind.RETURN_STMT


def writes(function: Function) -> Iterator[tuple[str, int]]:
    """Every shared variable that a function changes: as it is written, and the line."""
    for node in find(function.body, lambda c: c.kind in _CHANGES):
        children = list(node.get_children())
        if not children:
            continue
        if node.kind is CursorKind.BINARY_OPERATOR and operator(node) not in _WRITES:
            continue
        if node.kind is CursorKind.UNARY_OPERATOR and not _steps(node):
            continue
        yield from ((name, node.location.line) for name in _reads(children[0]))


_CHANGES = frozenset(
    {
        CursorKind.BINARY_OPERATOR,
        CursorKind.COMPOUND_ASSIGNMENT_OPERATOR,
        CursorKind.UNARY_OPERATOR,
    }
)


def _steps(node: Cursor) -> bool:
    line = text(node, 100)
    return line.startswith(("++", "--")) or line.endswith(("++", "--"))
