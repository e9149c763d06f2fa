# SPDX-License-Identifier: MIT
"""What the names in a Python loop come from, and what a call does, as far as its name tells."""

from __future__ import annotations

import ast
from collections.abc import Iterator

LoopNode = ast.While | ast.For | ast.AsyncFor

# Calls that give time away and hand nothing over.
PAUSES = {"sleep", "sched_yield", "wait", "join", "pause", "checkpoint", "relax"}
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now"}
# Questions: they change nothing that the program goes on with.
_QUESTIONS = CLOCKS | {
    *(
        "is_set",
        "isSet",
        "is_alive",
        "empty",
        "full",
        "qsize",
        "done",
        "cancelled",
        "running",
        "locked",
        "poll",
    ),
    *("exists", "is_file", "is_dir", "isfile", "isdir", "closed", "getppid", "active_count"),
    *(
        "len",
        "isinstance",
        "bool",
        "int",
        "float",
        "str",
        "getattr",
        "hasattr",
        "any",
        "all",
        "min",
        "max",
        "abs",
    ),
    *(
        "id",
        "callable",
        "range",
        "enumerate",
        "zip",
        "reversed",
        "sorted",
        "sum",
        "iter",
        "count",
        "repeat",
        "type",
    ),
}


def within(node: ast.AST) -> Iterator[ast.AST]:
    """What runs in the same frame as ``node``'s children, outside in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield child
        yield from within(child)


def of_loop(loop: LoopNode) -> Iterator[ast.AST]:
    """All that is evaluated in each round."""
    heads: list[ast.AST] = [loop.test] if isinstance(loop, ast.While) else [loop.target, loop.iter]
    for part in [*heads, *loop.body]:
        if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield part
            yield from within(part)


class Bindings:
    """What a loop binds: names with the one expression that they get.

    ``counters`` go on from their own value; ``own`` is what the loop decides by itself, these
    included.
    """

    def __init__(self, loop: LoopNode) -> None:
        self._values: dict[str, list[ast.expr]] = {}
        self._elements: set[str] = set()
        self.counters: set[str] = set()
        for node in of_loop(loop):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                self._bind(node.target, node.value)
            elif isinstance(node, ast.AugAssign):
                self._counts(node.target)
            elif isinstance(node, (ast.For, ast.AsyncFor)):
                # A loop within begins anew in each round, so its variable is no counter of this
                # one.
                self._bind(node.target, node.iter)
                self._elements |= stored(node.target)
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            self._counts(loop.target)
        self.counters |= {name for name in self._values if name in self._reached(name)}
        self.own = set(self.counters)
        # Names that are computed from those alone, or that only get constants (`changed = True`),
        # are the loop's as well.
        while more := {name for name in self._values.keys() - self.own if self._is_own(name)}:
            self.own |= more

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        for place in stored(target):
            self._values.setdefault(place, []).append(value)

    def _reached(self, name: str) -> set[str]:
        """All that the value of ``name`` comes from, in this round or an earlier one."""
        reached: set[str] = set()
        new = {name}
        while new:
            read = {
                place for n in new for value in self._values.get(n, ()) for place in places(value)
            }
            new = read - reached
            reached |= new
        return reached

    def _is_own(self, name: str) -> bool:
        values = self._values[name]
        # A call's result comes from that call, whatever its arguments are: a back-off's delay.
        answered = any(
            isinstance(n, ast.Call) and not asks(n)
            for value in values
            for n in [value, *within(value)]
        )
        constants = len(values) > 1 and all(isinstance(value, ast.Constant) for value in values)
        return constants or (not answered and any(places(value) & self.own for value in values))

    def _counts(self, target: ast.expr) -> None:
        self.counters |= stored(target)

    def source(self, name: str) -> ast.expr | None:
        """The only expression that the loop gives to ``name``."""
        values = self._values.get(name, [])
        return values[0] if len(values) == 1 and name not in self.counters else None

    def described(self, name: str, source: ast.expr) -> str:
        """``source`` as it is shown."""
        return f"each of {ast.unparse(source)}" if name in self._elements else ast.unparse(source)

    def is_unclear(self, name: str) -> bool:
        """Whether the loop gives ``name`` more than one value."""
        return name in self._values and name not in self.counters and self.source(name) is None


_PLACES = (ast.Name, ast.Attribute, ast.Subscript)


def places(expression: ast.expr) -> set[str]:
    """The names, attributes and elements in it, as text."""
    return {
        ast.unparse(node) for node in [expression, *within(expression)] if isinstance(node, _PLACES)
    }


def stored(target: ast.expr) -> set[str]:
    """What an assignment to ``target`` changes: of ``a.b`` that, and not ``a``."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return set().union(*(stored(part) for part in target.elts))
    return {ast.unparse(target.value if isinstance(target, ast.Starred) else target)}


def callee(call: ast.Call) -> str:
    """The last part of the name of what is called, without underscores in front; empty where it has
    none.
    """
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return str(name).lstrip("_")


def asks(call: ast.Call) -> bool:
    """Whether the call only tells something."""
    name = callee(call)
    # A mapping's `get`, not a queue's.
    return name in _QUESTIONS or (
        name == "get" and bool(call.args) and isinstance(call.args[0], ast.Constant)
    )


def is_harmless(call: ast.Call) -> bool:
    """Whether the call asks or pauses."""
    return callee(call) in PAUSES or asks(call)
