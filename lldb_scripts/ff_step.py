# SPDX-License-Identifier: MIT
"""Steps one thread, instruction by instruction, and tells a sink what it did.

In: a stopped process, a thread of it. Out, to the sink: words as ``core/export/src/stepping.rs``
takes them. The sink says which code is traced. Calls into other code are stepped over: they leave
where they began, where they returned, and the registers then. Small functions that make a system
call themselves are traced anywhere: what the kernel writes for a thread is the thread's own, and
only the system call tells what that is. Other threads stand still while the thread steps, except in
calls and system calls. Now and then they get a turn, in which this one stands still: what it waits
for comes from them.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import ff_heap
import ff_walk
import lldb
from ff_process import ENDED, REGISTERS, TRAP, handles_traps

PLAIN, SYSCALL, PUSHES_FLAGS, POPS_FLAGS, CALL, RETURN, JUMP, REPEATED = range(8)
NOT_IN_PASSING = (PUSHES_FLAGS, REPEATED)  # the step may not be all
STEP, REGISTERS_ARE, MOVED, _, _, CALLED_OVER = range(6)  # ALLOCATED, FREED: ff_heap.py
LONGEST = 15  # bytes of an instruction
MASK = (1 << 64) - 1
FRAMES = 256
# Steps between two looks at the clock, and at wishes to end.
ROUND = 256
# Turns of the other threads: seconds of one, and how much longer than the last one the steps before
# the next one take.
TURN = 0.05
STEPPING = 20
# What a frame tells without asking the debugger's server, which takes a tenth of a step.
CHEAP = {"rsp": lldb.SBFrame.GetSP, "rbp": lldb.SBFrame.GetFP}
SYSTEM_CALL = b"\x0f\x05"
SMALL = 512  # bytes of a function; `select` has 485, locks that rarely call have more
# They go on elsewhere than behind their call.
JUMPERS = (
    "longjmp", "_longjmp", "siglongjmp", "__longjmp_chk",
    "__cxa_throw", "__cxa_rethrow", "_Unwind_Resume", "_Unwind_RaiseException",
)  # fmt: skip


POPFQ, IRETQ = b"\x9d", b"\x48\xcf"
TRAP_FLAG = 1 << 8
SIGACTION, SIGPROCMASK = 13, 14
SIGTRAP, SIG_IGN, SIG_UNBLOCK = 5, 1, 1
# CF, PF, AF, ZF, SF, TF, DF, OF, AC; NT, ID.
SETTABLE, OUT_OF_REACH = 0x40DD5, 0x204000


class Ended(Exception):
    """No more steps; why: ``target-ended``, ``thread-ended``, ``left``, ``limit``, ``flags``,
    ``traps`` or ``interrupted``.
    """


class Stepper:
    """``sink`` has what ``modules``, ``plan`` and ``feed`` of ``flagfinder.record.stepping.Sink``
    have; ``stopping()`` tells whether to end.
    """

    def __init__(
        self,
        process: lldb.SBProcess,
        thread: lldb.SBThread,
        sink: Any,
        stopping: Callable[[], bool],
    ) -> None:
        self._process = process
        self._target = process.GetTarget()
        self._thread = thread
        self._sink = sink
        self._stopping = stopping
        self._memory = os.open(f"/proc/{process.GetProcessID()}/mem", os.O_RDONLY)
        self._fs_base = self._frame().FindRegister("fs_base").GetValueAsUnsigned()
        self._plans: dict[int, tuple[Any, ...]] = {}
        self._names: dict[int, str] = {}
        self._small: dict[int, bool] = {}
        # Behind calls that were stepped over; disabled but while one runs.
        self._points: dict[int, lldb.SBBreakpoint] = {}
        self._words: list[int] = []
        self._called = 0
        self._traced: list[tuple[int, int]] = []
        self._others: list[tuple[int, int]] = []
        self._turn_due = time.monotonic()
        self.steps = 0
        self._until = 0
        self._pause_due = ROUND
        # The step under way: of which instruction, what to read, and what was read before.
        self._plan: tuple[Any, ...] = ()
        self._pc = 0
        self._operands_there: tuple[Any, ...] = ()
        ff_walk.introduce(self._target.GetDebugger())
        self._look_for_modules()

    def run(self, most: int) -> str:
        """Steps until ``most`` instructions are done or it can't go on; says why it ended (see
        ``Ended``).
        """
        try:
            if not self._in_traced(self._frame().GetPC()):
                self._step_over(RETURN)
            self._all_registers()
            self._loop(most)
        except Ended as why:
            return str(why)
        finally:
            for point in self._points.values():
                self._target.BreakpointDelete(point.GetID())
            os.close(self._memory)
            self._flush()

    def _loop(self, most: int) -> NoReturn:
        while self.steps < most:
            if self.steps >= self._pause_due:
                self._pause()
                self._pause_due = self.steps + ROUND
            self._until = min(most, self._pause_due)
            frame = self._frame()
            plan = self._plans.get(frame.GetPC())
            if plan is None:
                plan = self._learn(frame.GetPC())
                frame = self._frame()
            how = self._come_to(plan, frame.GetPC(), frame)
            if plan[0] == POPS_FLAGS:
                self._pop_flags(frame)
            elif not ff_walk.walk(self._thread, how, self._pass):
                self._check_alive()
                self._stop_if_wanted()
            self._finish()
        raise Ended("limit")

    def _come_to(self, plan: tuple[Any, ...], pc: int, frame: lldb.SBFrame) -> int:
        """Reads what a step needs. Returns how to make it."""
        if plan[0] == SYSCALL:
            self._check_traps(frame)
        self.steps += 1
        self._plan, self._pc = plan, pc
        self._operands_there = self._operands(frame, plan[1]) if plan[1] else ((), 0)
        if plan[0] == SYSCALL:
            self._registers_are(frame)
            return ff_walk.WITH_OTHERS
        return ff_walk.ALONE

    def _check_traps(self, frame: lldb.SBFrame) -> None:
        """Ends before a call behind which a step would lose what the program does with SIGTRAP: see
        ``ff_process.loses_traps``.
        """
        call, how, given = (
            frame.FindRegister(name).GetValueAsUnsigned() for name in ("rax", "rdi", "rsi")
        )
        word = int.from_bytes(self._read_fast(given, 8), "little") if given else 0
        ignores = call == SIGACTION and how == SIGTRAP and word == SIG_IGN
        blocks = call == SIGPROCMASK and how != SIG_UNBLOCK and word & TRAP
        if ignores or (blocks and handles_traps(self._process.GetProcessID())):
            raise Ended("traps")

    def _pass(self, frame: lldb.SBFrame) -> int:
        """Behind a step that went where it should, when the next one needs nothing else: takes it,
        and says how to go on. Otherwise the step is left to ``_finish``.
        """
        following = frame.GetPC()
        plan = self._plans.get(following)
        kind, _, _, targets = self._plan
        if (
            plan is None
            or plan[0] == POPS_FLAGS
            or kind in NOT_IN_PASSING
            or self.steps >= self._until
        ):
            return ff_walk.NO_STEP
        if targets and following not in targets:
            return ff_walk.NO_STEP
        self._take(following, frame)
        return self._come_to(plan, following, frame)

    def _take(self, following: int, frame: lldb.SBFrame) -> None:
        kind, _, after, targets = self._plan
        read, known = self._operands_there
        words = self._words
        words += (STEP, self._pc, following, known)
        words += read
        for name in after:
            words.append(frame.FindRegister(name).GetValueAsUnsigned())
        if kind == CALL or (kind == JUMP and targets):
            self._called = following

    def _finish(self) -> None:
        """Takes a step, whatever came of it, and all that has to follow before the next one."""
        kind, _, _, targets = self._plan
        frame = self._frame()
        following = frame.GetPC()
        if kind == REPEATED and following == self._pc:
            self._run_to(targets[0], frame.GetSP() - 1)
            frame = self._frame()
            following = frame.GetPC()
        if targets and following not in targets:
            self._missed(self._pc, frame)
            return
        if kind == PUSHES_FLAGS:
            self._clean_pushed_flags(frame.GetSP())
        self._take(following, frame)
        if kind >= CALL and following not in self._plans and not self._in_traced(following):
            self._step_over(kind)

    def _pop_flags(self, frame: lldb.SBFrame) -> None:
        """Does what a popf or iret does. Stepping it would leave the trap flag set in the program
        for good, and kill it: see ``core/step/src/popped.rs``.
        """
        cs, ss, flags = (
            frame.FindRegister(name).GetValueAsUnsigned() for name in ("cs", "ss", "rflags")
        )
        pc, sp, code = frame.GetPC(), frame.GetSP(), self._read(frame.GetPC(), 2)
        stack = [word for (word,) in struct.iter_unpack("<Q", self._read(sp, 40))]
        if code[:1] == POPFQ and stack:
            pc, popped, sp = pc + 1, stack[0], sp + 8
        elif code == IRETQ and stack[1::3] == [cs, ss]:
            pc, popped, sp = stack[0], stack[2], stack[3]
        else:
            raise Ended("flags")
        if (flags ^ popped) & OUT_OF_REACH:
            raise Ended("flags")
        for name, value in {"rflags": flags & ~SETTABLE | popped & SETTABLE, "rsp": sp}.items():
            self._frame().FindRegister(name).SetValueFromCString(hex(value))
        # Only so lldb forgets the frames that it has read where the debugger attached.
        self._frame().SetPC(pc)

    def _clean_pushed_flags(self, sp: int) -> None:
        """Takes the trap flag out: popped after we are gone it would kill the program."""
        (flags,) = struct.unpack("<Q", self._read(sp, 8))
        self._process.WriteMemory(sp, struct.pack("<Q", flags & ~TRAP_FLAG), lldb.SBError())

    def _pause(self) -> None:
        self._flush()
        self._stop_if_wanted()
        began = time.monotonic()
        if began >= self._turn_due and self._process.GetNumThreads() > 1:
            self._let_others_run()
            ended = time.monotonic()
            self._turn_due = ended + STEPPING * (ended - began)

    def _let_others_run(self) -> None:
        self._thread.Suspend()
        over = threading.Event()

        def end_it() -> None:
            while not over.wait(TURN):
                self._process.SendAsyncInterrupt()

        end = threading.Thread(target=end_it, daemon=True)
        end.start()
        try:
            self._process.Continue()
        finally:
            over.set()
            end.join()
            self._thread.Resume()
        self._check_alive()

    def _operands(self, frame: lldb.SBFrame, reads: tuple[Any, ...]) -> tuple[list[int], int]:
        """Address and value of each, and which values were read (bits)."""
        read: list[int] = []
        known = 0
        for number, (base, index, scale, displacement, in_thread_block, size) in enumerate(reads):
            address = displacement
            if base is not None:
                address += (
                    CHEAP[base](frame)
                    if base in CHEAP
                    else frame.FindRegister(base).GetValueAsUnsigned()
                )
            if index is not None:
                address += frame.FindRegister(index).GetValueAsUnsigned() * scale
            if in_thread_block:
                address += self._fs_base
            address &= MASK
            content = self._read_fast(address, size) if size else b""
            read += (address, int.from_bytes(content, "little"))
            if content:
                known |= 1 << number
        return read, known

    def _missed(self, pc: int, frame: lldb.SBFrame) -> None:
        """The instruction at ``pc`` was not executed: a signal's handler runs in its place, or a
        stop came before.
        """
        self._check_alive()
        if frame.GetPC() == pc:
            return
        self._words += (MOVED, pc, frame.GetPC(), frame.GetSP())
        if not self._in_traced(frame.GetPC()):
            self._step_over(RETURN)
        self._all_registers()

    def _frame(self) -> lldb.SBFrame:
        return self._thread.GetFrameAtIndex(0)

    def _learn(self, pc: int) -> tuple[Any, ...]:
        if not self._in_traced(pc):
            self._step_over(RETURN)  # control fell into it, which no compiler generates
            self._all_registers()
            pc = self._frame().GetPC()
        kind, reads, after, targets = self._sink.plan(pc, self._read_some(pc, LONGEST))
        named = tuple(
            (_name(base), _name(index), scale, displacement, in_thread_block, size)
            for base, index, scale, displacement, in_thread_block, size in reads
        )
        plan = (kind, named, tuple(REGISTERS[number] for number in after), tuple(targets))
        self._plans[pc] = plan
        return plan

    def _look_for_modules(self) -> None:
        """Where to step, as the process is mapped now."""
        self._traced, self._others = [], []
        for start, end, traced in self._sink.modules():
            (self._traced if traced else self._others).append((start, end))

    def _in_traced(self, pc: int) -> bool:
        if not any(start <= pc < end for start, end in self._traced + self._others):
            self._look_for_modules()
        return any(start <= pc < end for start, end in self._traced) or self._calls_kernel(pc)

    def _calls_kernel(self, pc: int) -> bool:
        """Whether it is in a small function that makes a system call itself."""
        known = self._small.get(pc)
        if known is None:
            symbol = self._target.ResolveLoadAddress(pc).GetSymbol()
            start, end = (
                at.GetLoadAddress(self._target)
                for at in (symbol.GetStartAddress(), symbol.GetEndAddress())
            )
            size = end - start if symbol.IsValid() else 0
            known = self._small[pc] = 0 < size <= SMALL and SYSTEM_CALL in self._read(start, size)
        return known

    def _step_over(self, kind: int) -> None:
        """Control is in a module to be stepped over; goes on to where it comes back from there."""
        self._check_alive()
        frame = self._frame()
        entry, sp = frame.GetPC(), frame.GetSP()
        name = self._name_of(self._called if kind == JUMP and self._called else entry)
        taken = ff_heap.arguments(name, frame) if kind in (CALL, JUMP) else None
        back = int.from_bytes(self._read(sp, 8), "little") if kind in (CALL, JUMP) else 0
        returns = name not in JUMPERS and back != 0 and self._in_traced(back)
        if returns:
            self._run_to(back, sp)
        elif name in JUMPERS:
            self._run_through()
        else:
            self._run_to(self._traced_caller(), sp)
        frame = self._frame()
        if taken is not None:
            self._words += ff_heap.words(taken, back, frame)
        self._words += (CALLED_OVER if returns else MOVED, entry, frame.GetPC(), frame.GetSP())
        self._all_registers()

    def _traced_caller(self) -> int:
        for number in range(1, min(self._thread.GetNumFrames(), FRAMES)):
            pc: int = self._thread.GetFrameAtIndex(number).GetPC()
            if self._in_traced(pc):
                return pc
        raise Ended("left")

    def _run_to(self, address: int, sp: int) -> None:
        """Lets all threads run until this one is at ``address`` with its stack above ``sp``."""
        point = self._points.get(address)
        if point is None:
            point = self._points[address] = self._target.BreakpointCreateByAddress(address)
            point.SetThreadID(self._thread.GetThreadID())
        point.SetEnabled(True)
        try:
            while True:
                self._process.Continue()
                self._check_alive()
                frame = self._frame()
                if frame.GetPC() == address and frame.GetSP() > sp:
                    return
                self._stop_if_wanted()
        finally:
            point.SetEnabled(False)

    def _run_through(self) -> None:
        while not self._in_traced(self._frame().GetPC()):
            self._thread.StepInstruction(False)
            self._check_alive()
            self._stop_if_wanted()

    def _check_alive(self) -> None:
        if self._process.GetState() in ENDED:
            raise Ended("target-ended")
        if not self._thread.IsValid():
            raise Ended("thread-ended")

    def _stop_if_wanted(self) -> None:
        if self._stopping():
            raise Ended("interrupted")

    def _all_registers(self) -> None:
        self._registers_are(self._frame())

    def _registers_are(self, frame: lldb.SBFrame) -> None:
        self._words.append(REGISTERS_ARE)
        self._words += (frame.FindRegister(name).GetValueAsUnsigned() for name in REGISTERS)

    def _name_of(self, pc: int) -> str:
        name = self._names.get(pc)
        if name is None:
            symbol = self._target.ResolveLoadAddress(pc).GetSymbol()
            name = (symbol.GetMangledName() or symbol.GetName() or "") if symbol.IsValid() else ""
            self._names[pc] = name
        return name

    def _read_fast(self, address: int, size: int) -> bytes:
        """Reads memory without lldb, which takes a hundred times as long. Empty if it can't be
        read.
        """
        try:
            content = os.pread(self._memory, size, address)
        except (OSError, OverflowError):
            return self._read(address, size)
        return content if len(content) == size else b""

    def _read(self, address: int, size: int) -> bytes:
        """Empty where it can't be read."""
        error = lldb.SBError()
        content = self._process.ReadMemory(address, size, error)
        return content if error.Success() and content is not None and len(content) == size else b""

    def _read_some(self, address: int, size: int) -> bytes:
        """Reads memory through lldb, which hides its breakpoints."""
        return self._read(address, size) or self._read(address, min(size, -address % 4096))

    def _flush(self) -> None:
        if self._words:
            self._sink.feed(
                time.clock_gettime_ns(time.CLOCK_MONOTONIC),
                struct.pack(f"<{len(self._words)}Q", *self._words),
            )
            self._words.clear()


def _name(number: int) -> str | None:
    return None if number < 0 else REGISTERS[number]
