# SPDX-License-Identifier: MIT
"""Which loop of a Python function some lines belong to, what ends it, and whether it does anything
but wait.

In: source and the lines at which a frame was seen. Out: ``Loop``. Nothing is executed, and no
process is looked at. Blind spots: what a call does is told by its name only (``sleep`` pauses,
``is_set`` asks), a property passes for an attribute, and what a raised exception would end is not
followed out of the loop.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Literal

from flagfinder.interpreters.python_bindings import (
    CLOCKS,
    PAUSES,
    Bindings,
    LoopNode,
    asks,
    callee,
    is_harmless,
    of_loop,
    places,
    within,
)
from flagfinder.interpreters.python_passed import (
    FunctionNode,
    Passed,
    passed,
    with_passed,
)
from flagfinder.shared.record import dataclass

LoopKind = Literal["waits", "works", "counts", "endless"]
Way = Literal["test", "break", "return", "raise", "exhausted"]

# Ways out of a loop, and conditions of one of them. Each way repeats the conditions of those before
# it, so their texts grow with the square.
_MOST_WAYS = 50
# Python 3.10 has no `except*`, whose statement has the same fields.
_TRIES: tuple[type[ast.Try], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}


class TooManyWaysError(Exception):
    """A loop can be left in more ways than are told."""


@dataclass(frozen=True)
class Exit:
    """One way out: ``when`` is a Python expression that is true then, empty where nothing is asked.

    ``where`` says from what the names in it come that the loop itself binds. ``pure``: to ask it
    changes nothing, as far as names tell. ``foreign``: something decides that the loop does not
    change itself; time alone does not count.
    """

    line: int
    way: Way
    when: str
    where: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    pure: bool
    foreign: bool


@dataclass(frozen=True)
class Loop:
    """A ``while`` or ``for``.

    ``waits``: there is nothing in it besides pauses, questions and counting; ``counts``: it comes
    to an end by itself; ``endless``: nothing leaves it but an exception. ``pause_lines``: those of
    calls that pause. ``bound``: the names that it gives values to; others stay as they are while it
    goes on.
    """

    function: str
    line: int
    end_line: int
    kind: LoopKind
    exits: tuple[Exit, ...]
    pause_lines: frozenset[int]
    bound: frozenset[str]


def find_loops(
    tree: ast.Module,
    function: str,
    lines: Collection[int],
    caller: tuple[ast.Module, int] | None = None,
) -> list[Loop]:
    """The loops of ``function`` that hold all ``lines``, innermost first; empty where there is
    none.

    ``function`` as in a code object's name; a class in front of it (``Job.wait``) is passed over.
    ``caller``: the source and the line that called it; what was handed over there stands for the
    parameter that the loop calls. Raises TooManyWaysError.
    """
    scope = scope_around(tree, function, lines)
    if scope is None or not lines:
        return []
    around = [
        loop
        for loop in _loops(scope)
        if loop.lineno <= min(lines) and max(lines) <= _last_line(loop)
    ]
    given: Passed = {}
    if isinstance(scope, FunctionNode) and caller is not None:
        given = passed(scope, *caller)
    return [_describe(with_passed(loop, given), function) for loop in reversed(around)]


def negated(test: ast.expr) -> ast.expr:
    """An expression that is true when ``test`` is not, with ``not`` pushed inwards."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITE:
        return ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators)
    if isinstance(test, ast.BoolOp):
        op = ast.Or() if isinstance(test.op, ast.And) else ast.And()
        return ast.BoolOp(op, [negated(value) for value in test.values])
    return ast.UnaryOp(ast.Not(), test)


def scope_around(tree: ast.Module, function: str, lines: Collection[int]) -> Scope | None:
    """The innermost ``function`` that holds all ``lines``."""
    name = function.rsplit(".", 1)[-1]
    found: Scope | None = None
    for node in ast.walk(tree):
        if not isinstance(node, Scope) or _name(node) != name:
            continue
        holds = isinstance(node, ast.Module) or all(
            node.lineno <= n <= (node.end_lineno or 0) for n in lines
        )
        # ast.walk goes outside in, so that the last one is the innermost.
        if holds:
            found = node
    return found


def _name(scope: Scope) -> str:
    if isinstance(scope, ast.Module):
        return "<module>"
    return "<lambda>" if isinstance(scope, ast.Lambda) else scope.name


def _last_line(loop: LoopNode) -> int:
    return loop.body[-1].end_lineno or loop.body[-1].lineno  # what stands in `else` is not repeated


def _loops(scope: Scope) -> list[LoopNode]:
    return [node for node in within(scope) if isinstance(node, (ast.While, ast.For, ast.AsyncFor))]


def _describe(loop: LoopNode, function: str) -> Loop:
    bindings = Bindings(loop)
    exits = tuple(islice(_exits(loop, bindings), _MOST_WAYS + 1))
    if len(exits) > _MOST_WAYS:
        raise TooManyWaysError
    leaving = [way for way in exits if way.way != "raise"]
    kind: LoopKind
    if not leaving:
        kind = "endless"
    elif not any(way.foreign for way in leaving):
        kind = "counts"
    elif all(way.way == "exhausted" and not way.pure for way in leaving if way.foreign):
        kind = "works"  # it takes what an iterator hands over
    else:
        kind = "works" if _does_work(loop, exits, bindings) else "waits"
    pauses = {
        line
        for node in of_loop(loop)
        if isinstance(node, ast.Call) and callee(node) in PAUSES
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    # Also what functions within bind: they may mean a variable of this one (nonlocal).
    bound = {
        node.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    bound |= {
        node.name
        for node in ast.walk(loop)
        if isinstance(node, ast.ExceptHandler) and node.name is not None
    }
    return Loop(
        function, loop.lineno, _last_line(loop), kind, exits, frozenset(pauses), frozenset(bound)
    )


@dataclass(frozen=True)
class _Condition:
    text: str
    expression: ast.expr | None  # None: an exception, a pattern

    @classmethod
    def true(cls, test: ast.expr) -> _Condition:
        """From an expression; nodes made by ``negated`` have no positions, which unparse does not
        need.
        """
        return cls(ast.unparse(test), test)


def _exits(loop: LoopNode, bindings: Bindings) -> Iterator[Exit]:
    if isinstance(loop, ast.While):
        if not _always(loop.test):
            yield _exit(loop.test.lineno, "test", [_Condition.true(negated(loop.test))], bindings)
    else:
        yield from _exhausted(loop, bindings)
    for line, way, conditions in _leaves(loop.body, [], True, False):
        yield _exit(line, way, conditions, bindings)


def _always(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _exhausted(loop: ast.For | ast.AsyncFor, bindings: Bindings) -> Iterator[Exit]:
    line, call = loop.iter.lineno, loop.iter
    if isinstance(call, ast.Call) and callee(call) == "iter" and len(call.args) == 2:
        asked, end = call.args
        value = asked.body if isinstance(asked, ast.Lambda) else ast.Call(asked, [], [])
        yield _exit(
            line, "exhausted", [_Condition.true(ast.Compare(value, [ast.Eq()], [end]))], bindings
        )
        return
    if (
        isinstance(call, ast.Call)
        and callee(call) in {"count", "cycle", "repeat"}
        and len(call.args) < 2
    ):
        return
    # Another iterator may be what is waited for, one that only counts is not.
    waits = isinstance(call, ast.Call) and not asks(call)
    yield Exit(line, "exhausted", f"{ast.unparse(call)} has no more", (), (), False, waits)


Leaf = tuple[int, Way, list[_Condition]]


def _leaves(
    body: list[ast.stmt], conditions: list[_Condition], own: bool, caught: bool
) -> Iterator[Leaf]:
    """The statements that leave the loop, with what is true then. ``own``: a ``break`` here is the
    loop's.
    """
    known = list(conditions)
    for statement in body:
        if isinstance(statement, ast.Break) and own:
            yield statement.lineno, "break", known
        elif isinstance(statement, ast.Return):
            yield statement.lineno, "return", known
        elif isinstance(statement, ast.Raise) and not caught:
            yield statement.lineno, "raise", known
        elif isinstance(statement, ast.If):
            yes, no = _Condition.true(statement.test), _Condition.true(negated(statement.test))
            yield from _leaves(statement.body, [*_few(known), yes], own, caught)
            yield from _leaves(statement.orelse, [*known, no], own, caught)
            if _ends(statement.body):
                known.append(no)
            elif _ends(statement.orelse):
                known.append(yes)
        elif isinstance(statement, (ast.While, ast.For, ast.AsyncFor)):
            inner = [_Condition.true(statement.test)] if isinstance(statement, ast.While) else []
            inner = [c for c in inner if c.expression is not None and not _always(c.expression)]
            yield from _leaves(statement.body, [*known, *inner], False, caught)
            through = _Condition(f"the loop of line {statement.lineno} ends without break", None)
            yield from _leaves(statement.orelse, [*known, through], own, caught)
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from _leaves(statement.body, known, own, caught)
        elif isinstance(statement, _TRIES):
            yield from _leaves_try(statement, known, own, caught)
        elif isinstance(statement, ast.Match):
            subject = ast.unparse(statement.subject)
            for case in statement.cases:
                fits = _Condition(f"{subject} matches {ast.unparse(case.pattern)}", None)
                yield from _leaves(case.body, [*known, fits], own, caught)


def _few(conditions: list[_Condition]) -> list[_Condition]:
    if len(conditions) > _MOST_WAYS:
        raise TooManyWaysError
    return conditions


def _leaves_try(
    statement: ast.Try, known: list[_Condition], own: bool, caught: bool
) -> Iterator[Leaf]:
    handles = bool(statement.handlers)
    raised = [
        ast.unparse(h.type) if h.type is not None else "an exception" for h in statement.handlers
    ]
    first = statement.body[0]
    asked = (
        ast.unparse(first.value)
        if isinstance(first, (ast.Expr, ast.Assign, ast.Return)) and first.value is not None
        else f"line {first.lineno}"
    )
    none = [_Condition(f"{asked} does not raise {' or '.join(raised)}", None)] if handles else []
    # What stands first in the body comes before anything can be raised, but by the call whose
    # result it returns.
    calls = isinstance(first, ast.Return) and any(
        isinstance(node, ast.Call) for node in within(first)
    )
    yield from _leaves(
        statement.body[:1], [*known, *none] if calls else known, own, caught or handles
    )
    yield from _leaves(statement.body[1:], [*known, *none], own, caught or handles)
    for handler, name in zip(statement.handlers, raised, strict=True):
        yield from _leaves(
            handler.body, [*known, _Condition(f"{asked} raises {name}", None)], own, caught
        )
    yield from _leaves(statement.orelse, [*known, *none], own, caught)
    yield from _leaves(statement.finalbody, known, own, caught)


def _ends(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Continue, ast.Break, ast.Return, ast.Raise))


def _exit(line: int, way: Way, conditions: list[_Condition], bindings: Bindings) -> Exit:
    expressions = [c.expression for c in conditions if c.expression is not None]
    read = sorted(set().union(*(places(expression) for expression in expressions)))
    sources = [(name, source) for name in read if (source := bindings.source(name)) is not None]
    asked = [*expressions, *(source for _, source in sources)]
    names = {
        node.id for part in asked for node in [part, *within(part)] if isinstance(node, ast.Name)
    }
    texts = [_parenthesised(c) if len(conditions) > 1 else c.text for c in conditions]
    return Exit(
        line=line,
        way=way,
        when=" and ".join(texts),
        where=tuple((name, bindings.described(name, source)) for name, source in sources),
        names=tuple(sorted(names)),
        pure=bool(asked)
        and len(expressions) == len(conditions)
        and all(_is_pure(part) for part in asked)
        and not any(bindings.is_unclear(name) for name in read),
        foreign=any(_is_foreign(atom, bindings) for part in expressions for atom in _atoms(part))
        or len(expressions) < len(conditions),
    )


def _parenthesised(condition: _Condition) -> str:
    either = isinstance(condition.expression, ast.BoolOp) and isinstance(
        condition.expression.op, ast.Or
    )
    loose = either or isinstance(condition.expression, (ast.IfExp, ast.Lambda))
    return f"({condition.text})" if loose else condition.text


def _atoms(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _atoms(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _atoms(test.operand)
    else:
        yield test


def _is_foreign(atom: ast.expr, bindings: Bindings) -> bool:
    """Whether something in it can change that the loop neither counts itself nor reads off a
    clock.
    """
    parts = [atom, *within(atom)]
    if any(isinstance(part, ast.Call) and callee(part) in CLOCKS for part in parts):
        return False
    read = places(atom)
    if read & bindings.own:
        return False
    for name in read:
        source = bindings.source(name)
        if source is not None and any(
            isinstance(node, ast.Call) and callee(node) in CLOCKS
            for node in [source, *within(source)]
        ):
            return False
    return bool(read) or any(isinstance(part, ast.Call) for part in parts)


def _is_pure(expression: ast.expr) -> bool:
    impure = (ast.Await, ast.Yield, ast.YieldFrom)
    parts = [expression, *within(expression)]
    return not any(
        isinstance(p, impure) or (isinstance(p, ast.Call) and not is_harmless(p)) for p in parts
    )


def _does_work(loop: LoopNode, exits: tuple[Exit, ...], bindings: Bindings) -> bool:
    """Whether there is more in it than pauses, questions, counting, and what decides its exits."""
    deciding = _deciding_calls(loop, exits, bindings)
    counted = {node.target for node in of_loop(loop) if isinstance(node, ast.AugAssign)}
    # What an exception is made of is evaluated as the loop ends.
    raised = {
        part for node in of_loop(loop) if isinstance(node, ast.Raise) for part in within(node)
    }
    for node in of_loop(loop):
        if isinstance(node, ast.Call):
            if not is_harmless(node) and node not in deciding and node not in raised:
                return True
        elif isinstance(node, (ast.Yield, ast.YieldFrom, ast.Delete, ast.Import, ast.ImportFrom)):
            return True
        elif (
            isinstance(node, (ast.Attribute, ast.Subscript))
            and isinstance(node.ctx, ast.Store)
            and node not in counted
        ):
            return True  # what is stored elsewhere is work; counting is not
    return False


def _deciding_calls(loop: LoopNode, exits: tuple[Exit, ...], bindings: Bindings) -> set[ast.AST]:
    """Calls whose answer, or whose exception, is what an exit asks for."""
    parts: list[ast.AST] = [loop.test] if isinstance(loop, ast.While) else [loop.iter]
    for node in of_loop(loop):
        if isinstance(node, ast.If) and _leads_out(node):
            parts.append(node.test)
        elif isinstance(node, _TRIES) and _leads_out(node):
            parts.append(node.body[0])
    named = {name for way in exits for name, _ in way.where}
    parts += [source for name in named if (source := bindings.source(name)) is not None]
    return {node for part in parts for node in [part, *within(part)] if isinstance(node, ast.Call)}


def _leads_out(statement: ast.stmt) -> bool:
    leaving = (ast.Break, ast.Return, ast.Raise, ast.Continue)
    return any(isinstance(node, leaving) for node in within(statement))
