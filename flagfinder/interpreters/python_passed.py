# SPDX-License-Identifier: MIT
"""What a caller hands to a function that calls it: ``wait_until(lambda: job.done)``.

In: the source of a function and of its caller. Out: for each parameter that the function never
gives another value, what the caller handed over, and loops in which the calls of such parameters
are replaced by it. Blind spots: two calls of the function in one statement; what goes through
``*args``, a decorator or ``functools.partial``; names that mean something else in the function.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from flagfinder.interpreters.python_bindings import LoopNode, callee

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Passed = Mapping[str, ast.expr]


def passed(function: FunctionNode, caller: ast.Module, line: int) -> Passed:
    """By parameter: the lambda, function or method that the call at ``line`` hands over."""
    calls = [
        node
        for node in ast.walk(caller)
        if isinstance(node, ast.Call)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and callee(node) == function.name.lstrip("_")
    ]
    if len(calls) != 1:
        return {}
    (call,) = calls
    names = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
    if names[:1] in (["self"], ["cls"]) and isinstance(call.func, ast.Attribute):
        names = names[1:]
    given = dict(zip(names, _before_star(call), strict=False))
    given |= {word.arg: word.value for word in call.keywords if word.arg is not None}
    bound = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    own = bound | {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    return {
        name: value
        for name, value in given.items()
        if name not in bound
        and isinstance(value, ast.Lambda | ast.Name | ast.Attribute)
        and not _names(value) & own
    }


def with_passed(loop: LoopNode, given: Passed) -> LoopNode:
    """The loop with what its calls of parameters evaluate."""
    if not given:
        return loop
    changed = _Replaces(given).visit(copy.deepcopy(loop))
    return changed if isinstance(changed, LoopNode) else loop


def _before_star(call: ast.Call) -> list[ast.expr]:
    stars = [at for at, value in enumerate(call.args) if isinstance(value, ast.Starred)]
    return call.args[: stars[0]] if stars else call.args


def _names(value: ast.expr) -> set[str]:
    """Those that it takes from around it."""
    own = {node.arg for node in ast.walk(value) if isinstance(node, ast.arg)}
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} - own


class _Replaces(ast.NodeTransformer):
    def __init__(self, given: Passed) -> None:
        self._given = given

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        value = self._given.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if value is None:
            return node
        if isinstance(value, ast.Lambda):
            return ast.copy_location(copy.deepcopy(value.body), node)
        return ast.copy_location(ast.Call(value, node.args, node.keywords), node)
