# SPDX-License-Identifier: MIT
"""Steps a thread by a thread plan of ours: lldb asks it at each step, and makes no stop of it.

``SBThread.StepInstruction`` makes a stop of each step: lldb tells whoever listens, and asks its
server about all threads, which forgets the registers that came with the step. Here only a step that
ends the walk is a stop. Whatever else stops the thread (a signal, a breakpoint, an interruption)
ends the walk as it ends any step.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import lldb

# How to make the next step: not at all, the other threads standing still, all threads running.
NO_STEP, ALONE, WITH_OTHERS = range(3)


class _Wish:
    """What the next plan is for: lldb makes the plan's object itself, from a name."""

    def __init__(self, first: int, how: Callable[[lldb.SBFrame], int]) -> None:
        self.first = first
        self.how = how
        self.error: BaseException | None = None
        self.done = False


_wishes: list[_Wish] = []
_LEFT_BEHIND = re.compile(rf"Element (\d+): .* class {__name__}\.Walk\b")


class Walk:
    """A plan. lldb calls it on a thread of its own, while the one that asked for the walk waits."""

    def __init__(self, plan: lldb.SBThreadPlan, *_names: object) -> None:
        self._plan = plan
        self._thread = plan.GetThread()
        self._wish = _wishes[-1]
        plan.SetStopOthers(self._wish.first == ALONE)

    def explains_stop(self, _event: lldb.SBEvent) -> bool:
        """Signals and breakpoints are others' business."""
        return bool(self._thread.GetStopReason() == lldb.eStopReasonTrace)

    def should_step(self) -> bool:
        """Instead of running."""
        return True

    def should_stop(self, _event: lldb.SBEvent) -> bool:
        wish = self._wish
        try:
            if how := wish.how(self._thread.GetFrameAtIndex(0)):
                self._plan.SetStopOthers(how == ALONE)
                return False
        except BaseException as error:
            wish.error = error  # lldb would only print it
        wish.done = True
        self._plan.SetPlanComplete(True)
        return True


def introduce(debugger: lldb.SBDebugger) -> None:
    """To be called before: lldb looks the plan up among the names of this debugger's scripts."""
    debugger.HandleCommand(f"script import {__name__}")


def walk(thread: lldb.SBThread, first: int, how: Callable[[lldb.SBFrame], int]) -> bool:
    """Steps the thread as ``first`` says, then as ``how`` says of where it is each time, until that
    is NO_STEP; False: something stopped it before.

    Needs lldb's synchronous mode. What ``how`` raises is raised here.
    """
    wish = _Wish(first, how)
    _wishes.append(wish)
    try:
        error = thread.StepUsingScriptedThreadPlan(f"{__name__}.{Walk.__name__}")
    finally:
        _wishes.remove(wish)
    if not wish.done:
        _discard(thread)
    if wish.error is not None:
        raise wish.error
    if error.Fail():
        raise RuntimeError(f"lldb can't step: {error.GetCString()}")
    return wish.done


def _discard(thread: lldb.SBThread) -> None:
    """Takes away a plan that something else ended: lldb would go on with it. Only commands can."""
    process = thread.GetProcess()
    interpreter = process.GetTarget().GetDebugger().GetCommandInterpreter()
    selected, result = process.GetSelectedThread(), lldb.SBCommandReturnObject()
    process.SetSelectedThread(thread)
    interpreter.HandleCommand(f"thread plan list {thread.GetIndexID()}", result)
    active = re.split("(?:Completed|Discarded) plan stack", result.GetOutput() or "")[0]
    for number in _LEFT_BEHIND.findall(active)[:1]:  # and all above it
        interpreter.HandleCommand(f"thread plan discard {number}", result)
    process.SetSelectedThread(selected)
