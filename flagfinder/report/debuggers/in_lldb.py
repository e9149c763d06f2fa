# SPDX-License-Identifier: MIT
# --- lldb
# ------------------------------------------------------------------------------------------

import lldb

SYSCALL_BYTES = 2
CALL_BYTES = range(7, 1, -1)


def say(text):
    print(f"flagfinder: {visible(text)}")


def stopped_at(process, address):
    """The thread that a breakpoint stopped at the address; None without one."""
    for thread in process:
        if (
            thread.GetStopReason() == lldb.eStopReasonBreakpoint
            and thread.GetFrameAtIndex(0).GetPC() == address
        ):
            return thread
    return None


def run_to(target, process, address, wanted=lambda _: True):
    """Goes on until a thread that is wanted comes to the address; None when the process ends
    before.
    """
    breakpoint = target.BreakpointCreateByAddress(address)
    found = None
    while found is None:
        process.Continue()
        if process.GetState() != lldb.eStateStopped:
            break
        thread = stopped_at(process, address)
        if thread is None:
            break
        if wanted(thread):
            found = thread
    target.BreakpointDelete(breakpoint.GetID())
    return found


def begin(target):
    """The process, and whether it ran already; a program that was not started stops where its own
    code begins.
    """
    process = target.GetProcess()
    if process.IsValid() and process.GetState() == lldb.eStateStopped:
        return process, True
    launch = target.GetLaunchInfo()
    launch.SetLaunchFlags(launch.GetLaunchFlags() | lldb.eLaunchFlagStopAtEntry)
    error = lldb.SBError()
    process = target.Launch(launch, error)
    if error.Fail():
        raise RuntimeError(str(error))
    pid = process.GetProcessID()
    run_to(target, process, entry_of(pid))
    if address_of(pid, FACTS["branch"]) is None:
        say(
            f"{FACTS['branch']['module']} is loaded later; stopping at each dlopen until it is "
            "there"
        )
        breakpoint = target.BreakpointCreateByName("dlopen")
        while process.GetState() == lldb.eStateStopped and address_of(pid, FACTS["branch"]) is None:
            process.Continue()
            for thread in process:
                if thread.GetStopReason() == lldb.eStopReasonBreakpoint:
                    thread.StepOut()
        target.BreakpointDelete(breakpoint.GetID())
    return process, False


def run_thread_to(target, process, thread, address):
    """Runs until the thread is at the address; None when it does not come there."""
    if thread.GetFrameAtIndex(0).GetPC() == address:
        return thread
    mine = thread.GetThreadID()
    return run_to(target, process, address, lambda other: other.GetThreadID() == mine)


def operand_at(target, thread):
    """The address that the instruction at which the thread stands takes its operand from."""
    frame = thread.GetFrameAtIndex(0)
    place = lldb.SBAddress(frame.GetPC(), target)
    found = target.ReadInstructions(place, 1, "intel").GetInstructionAtIndex(0)

    def register(name):
        return frame.FindRegister(name).GetValueAsUnsigned()

    return operand_address(found.GetOperands(target), frame.GetPC() + found.GetByteSize(), register)


def is_called(process, thread):
    """Whether the thread has the caller on its stack."""
    caller = address_of(process.GetProcessID(), FACTS["branch"])
    return any(frame.GetPC() == caller for frame in thread)


def call_before(target, after):
    """Where the call instruction begins that returns to the address; its tail may look like a
    shorter one.
    """
    for length in CALL_BYTES:
        found = target.ReadInstructions(lldb.SBAddress(after - length, target), 1, "intel")
        found = found.GetInstructionAtIndex(0)
        if found.GetByteSize() == length and found.GetMnemonic(target).startswith("call"):
            return after - length
    return None


def run_alone_to(target, process, thread, places):
    """The thread goes on to one of the addresses; the others, to be stepped over them else, do
    not.
    """
    breakpoints = [target.BreakpointCreateByAddress(place) for place in places]
    others = [other for other in process if other.GetThreadID() != thread.GetThreadID()]
    for other in others:
        other.Suspend()
    process.Continue()
    for other in others:
        other.Resume()
    for breakpoint in breakpoints:
        target.BreakpointDelete(breakpoint.GetID())


def stop_before_the_wait(target, process, after):
    """The thread that stands at the system call, made by the call that returns to the address; None
    without one.

    The breakpoint is at that call: stepping over one at the system call would stop all other
    threads while it blocks.
    """
    call, wait = call_before(target, after), address_of(process.GetProcessID(), FACTS["wait"])
    while call is not None:
        thread = run_to(target, process, call)
        if thread is None:
            break
        run_alone_to(target, process, thread, [wait, after])
        if process.GetState() == lldb.eStateStopped and thread.GetFrameAtIndex(0).GetPC() == wait:
            return thread
    return None


def waits_behind(process, call):
    """The thread that is in the system call at the address already; None without one."""
    for thread in process:
        if thread.GetFrameAtIndex(0).GetPC() == call + SYSCALL_BYTES and is_called(process, thread):
            return thread
    return None


def flag_address(target, process, thread):
    """By its place, a register, or by what the instruction that reads it makes of its registers."""
    flag, pid = FACTS["flag"], process.GetProcessID()
    if flag["register"]:
        return thread.GetFrameAtIndex(0).FindRegister(flag["register"]).GetValueAsUnsigned()
    if flag["place"]:
        return address_of(pid, flag["place"])
    if not flag["reader"]:
        return None
    thread = run_thread_to(target, process, thread, address_of(pid, flag["reader"]))
    return operand_at(target, thread) if thread else None


def show_state(thread):
    """By the interface: commands have no process yet where it was started just now."""
    general = (
        thread.GetFrameAtIndex(0).GetRegisters().GetFirstValueByName("General Purpose Registers")
    )
    for register in (register for register in general if register.GetByteSize() == 8):
        print(f"{register.GetName():>10} = {register.GetValueAsUnsigned():#018x}")
    for frame in list(thread)[:12]:
        print(f"    {visible(str(frame))}")


def stop_where_the_runs_part(target, process, branch, attached):
    """The thread that stands at the branch, in the wait that lasts; None when it does not come to
    that.
    """
    if FACTS["hang"]:
        if FACTS["hang"] == "computes":
            return run_to(target, process, branch)
        wait = address_of(process.GetProcessID(), FACTS["wait"])
        there = waits_behind(process, wait) if attached else None
        return there or stop_before_the_wait(target, process, branch)
    seen, waits, thread = {}, Waits(), None

    def comes_as_recorded(other):
        number = other.GetIndexID()
        seen[number] = seen.get(number, 0) + 1
        return FACTS["thread"] in (None, number) and seen[number] >= FACTS["occurrence"]

    def lasts(other):
        number = other.GetIndexID()
        mine = thread is None or number == thread.GetIndexID()
        return mine and waits.lasts(number, operand_at(target, other))

    polled = FACTS["flag"]["polled"]
    if not (attached and polled):
        thread = run_to(target, process, branch, comes_as_recorded)
        if thread is None or not polled:
            return thread
    reader = address_of(process.GetProcessID(), FACTS["flag"]["reader"])
    polling = run_to(target, process, reader, lasts)
    return run_thread_to(target, process, polling, branch) if polling else None


def show(debugger):
    target = debugger.GetSelectedTarget()
    process, attached = begin(target)
    branch = address_of(process.GetProcessID(), FACTS["branch"])
    if branch is None:
        say(f"{FACTS['branch']['module']} was never loaded")
        return
    thread = stop_where_the_runs_part(target, process, branch, attached)
    if thread is None:
        say("the program ended, or stopped elsewhere, before it came there, and stayed")
        return
    process.SetSelectedThread(thread)
    say(f"thread {thread.GetIndexID()} is at {FACTS['branch']['text']}, {FACTS['where']}")
    show_state(thread)
    flag = FACTS["flag"]
    if flag is None:
        say("no flag is known")
        return
    address = flag_address(target, process, thread)
    if address is None:
        say(f"the address of {flag['name']} does not follow from the registers here")
        return
    error = lldb.SBError()
    size = flag["size"] if flag["size"] in (1, 2, 4, 8) else 1
    value = process.ReadUnsignedFromMemory(address, size, error)
    say(f"{flag['name']} is {value:#x} at {address:#x}; {FACTS['ends']} {flag['exit_when']}")
    watchpoint = target.WatchAddress(address, size, False, True, error)
    if error.Fail() or not watchpoint.IsValid():
        say(f"no watchpoint could be set: {error}")
    else:
        say(f"watchpoint {watchpoint.GetID()} is set: continue, and it shows who writes")


def __lldb_init_module(debugger, _):
    before = debugger.GetAsync()
    debugger.SetAsync(False)
    try:
        show(debugger)
    finally:
        debugger.SetAsync(before)
