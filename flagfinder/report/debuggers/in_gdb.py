# SPDX-License-Identifier: MIT
# --- gdb
# -------------------------------------------------------------------------------------------

import gdb

SYSCALL_BYTES = 2
CALL_BYTES = range(7, 1, -1)
TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long"}


def say(text):
    gdb.write(f"flagfinder: {visible(text)}\n")


def pid():
    return gdb.selected_inferior().pid


class Parting(gdb.Breakpoint):
    """Stops in the thread, and the time, in which the recorded run went another way for good."""

    def __init__(self, address):
        super().__init__(f"*{address:#x}", internal=True)
        self.seen = {}

    def stop(self):
        number = gdb.selected_thread().num
        self.seen[number] = self.seen.get(number, 0) + 1
        return FACTS["thread"] in (None, number) and self.seen[number] >= FACTS["occurrence"]


class Poll(gdb.Breakpoint):
    """Stops where the flag is read, in a thread whose wait lasts. ``only`` is that thread, or None
    for any.
    """

    def __init__(self, address, only):
        super().__init__(f"*{address:#x}", internal=True)
        self.address = address
        self.only = only
        self.waits = Waits()

    def stop(self):
        number = gdb.selected_thread().num
        return self.only in (None, number) and self.waits.lasts(number, operand_at(self.address))


def begin():
    """Runs a program that was not started up to where the module with the branch is loaded."""
    if pid():
        return True
    gdb.execute("starti", to_string=True)
    gdb.execute(f"tbreak *{entry_of(pid()):#x}", to_string=True)
    gdb.execute("continue", to_string=True)
    if address_of(pid(), FACTS["branch"]) is None:
        gdb.execute("catch load", to_string=True)
        while pid() and address_of(pid(), FACTS["branch"]) is None:
            gdb.execute("continue", to_string=True)
    return False


def register(name):
    return int(gdb.parse_and_eval(f"${name}")) % 2**64


def operand_at(pc):
    """The address that the instruction at ``pc``, where the thread stands, takes its operand
    from.
    """
    found = gdb.selected_frame().architecture().disassemble(pc)[0]
    return operand_address(found["asm"].split("#")[0], pc + found["length"], register)


def run_to(address):
    """Goes on until the selected thread comes to the address; whether it did."""
    if address != register("rip"):
        gdb.execute(f"tbreak *{address:#x} thread {gdb.selected_thread().num}", to_string=True)
        gdb.execute("continue", to_string=True)
    return bool(pid()) and register("rip") == address


def is_called():
    """Whether the selected thread has the caller on its stack."""
    caller, frame = address_of(pid(), FACTS["branch"]), gdb.newest_frame()
    while frame is not None and frame.pc() != caller:
        frame = frame.older()
    return frame is not None


def call_before(after):
    """Where the call instruction begins that returns to the address; its tail may look like a
    shorter one.
    """
    architecture = gdb.selected_frame().architecture()
    for length in CALL_BYTES:
        found = architecture.disassemble(after - length)[0]
        if found["length"] == length and found["asm"].startswith("call"):
            return after - length
    return None


def run_alone_to(places):
    """The selected thread goes on to one of the addresses; the others, to be stepped over them
    else, do not.
    """
    breakpoints = [gdb.Breakpoint(f"*{place:#x}", internal=True) for place in places]
    gdb.execute("set scheduler-locking on")
    gdb.execute("continue", to_string=True)
    gdb.execute("set scheduler-locking off")
    for breakpoint in breakpoints:
        breakpoint.delete()


def stop_before_the_wait(after):
    """Whether a thread stands at the system call, made by the call that returns to the address.

    The breakpoint is at that call: stepping over one at the system call would stop all other
    threads while it blocks.
    """
    call, wait = call_before(after), address_of(pid(), FACTS["wait"])
    while call is not None and run_with(gdb.Breakpoint(f"*{call:#x}", internal=True)):
        run_alone_to([wait, after])
        if pid() and register("rip") == wait:
            return True
    return False


def waits_behind(call):
    """Whether a thread is in the system call at the address already; it is selected then."""
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        if register("rip") == call + SYSCALL_BYTES and is_called():
            return True
    return False


def flag_address():
    """By its place, a register, or by what the instruction that reads it makes of its registers."""
    flag = FACTS["flag"]
    if flag["register"]:
        return register(flag["register"])
    if flag["place"]:
        return address_of(pid(), flag["place"])
    reader = flag["reader"] and address_of(pid(), flag["reader"])
    return operand_at(reader) if reader and run_to(reader) else None


def run_with(breakpoint):
    """Goes on until the breakpoint stops a thread, and takes it away; says why when it did not come
    to that.
    """
    place = int(breakpoint.location.lstrip("*"), 16)
    gdb.execute("continue", to_string=True)
    if not pid():
        say("the program ended before it came there, and stayed")
        return False
    if register("rip") != place:
        say("stopped before the place was reached, by something else")
        return False
    breakpoint.delete()
    return True


def stop_where_the_runs_part(branch, attached):
    """Whether a thread stands at the branch, in the wait that lasts."""
    if FACTS["hang"]:
        if FACTS["hang"] == "computes":
            return run_with(gdb.Breakpoint(f"*{branch:#x}", internal=True))
        wait = address_of(pid(), FACTS["wait"])
        return (attached and waits_behind(wait)) or stop_before_the_wait(branch)
    polled = FACTS["flag"]["polled"]
    if not (attached and polled) and not run_with(Parting(branch)):
        return False
    if not polled:
        return True
    only = None if attached else gdb.selected_thread().num
    return run_with(Poll(address_of(pid(), FACTS["flag"]["reader"]), only)) and run_to(branch)


def main():
    gdb.execute("set pagination off")
    gdb.execute("set breakpoint pending off")
    gdb.execute("set disassembly-flavor intel")
    attached = begin()
    branch = address_of(pid(), FACTS["branch"]) if pid() else None
    if branch is None:
        say(f"{FACTS['branch']['module']} was never loaded")
        return
    if not stop_where_the_runs_part(branch, attached):
        return
    number = gdb.selected_thread().num
    say(f"thread {number} is at {FACTS['branch']['text']}, {FACTS['where']}")
    gdb.execute("info registers")
    gdb.execute("backtrace 12")
    flag = FACTS["flag"]
    if flag is None:
        say("no flag is known")
        return
    address = flag_address()
    if address is None:
        say(f"the address of {flag['name']} does not follow from the registers here")
        return
    kind = TYPES.get(flag["size"], "unsigned char")
    value = int(gdb.parse_and_eval(f"*({kind} *){address:#x}"))
    say(f"{flag['name']} is {value:#x} at {address:#x}; {FACTS['ends']} {flag['exit_when']}")
    gdb.execute(f"watch *({kind} *){address:#x}")
    say("continue, and the watchpoint shows who writes it")


main()
