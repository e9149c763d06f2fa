# --- gdb -------------------------------------------------------------------------------------------

import gdb

TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long"}


def say(text):
    gdb.write(f"flagfinder: {text}\n")


def pid():
    return gdb.selected_inferior().pid


class Parting(gdb.Breakpoint):
    """Stops in the thread, and the time, in which the recorded run went another way for good."""

    def __init__(self, address, attached):
        super().__init__(f"*{address:#x}", internal=True)
        self.attached = attached
        self.seen = {}

    def stop(self):
        number = gdb.selected_thread().num
        self.seen[number] = self.seen.get(number, 0) + 1
        if self.attached:
            return True
        return FACTS["thread"] in (None, number) and self.seen[number] >= FACTS["occurrence"]


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


def flag_address():
    """By its place, or by what the instruction that reads it makes of its registers."""
    flag = FACTS["flag"]
    if flag["place"]:
        return address_of(pid(), flag["place"])
    if not flag["reader"]:
        return None
    reader = address_of(pid(), flag["reader"])
    if reader != register("rip"):
        gdb.execute(f"tbreak *{reader:#x} thread {gdb.selected_thread().num}", to_string=True)
        gdb.execute("continue", to_string=True)
    if not pid():
        return None
    gdb.execute("set disassembly-flavor intel")
    found = gdb.selected_frame().architecture().disassemble(reader)[0]
    return operand_address(found["asm"].split("#")[0], reader + found["length"], register)


def main():
    gdb.execute("set pagination off")
    gdb.execute("set breakpoint pending off")
    attached = begin()
    branch = address_of(pid(), FACTS["branch"]) if pid() else None
    if branch is None:
        say(f"{FACTS['branch']['module']} was never loaded")
        return
    parting = Parting(branch, attached)
    gdb.execute("continue", to_string=True)
    if not pid():
        say("the program ended before it came to where the runs part")
        return
    if register("rip") != branch:
        say("stopped before the place was reached, by something else")
        return
    parting.delete()
    number = gdb.selected_thread().num
    say(f"thread {number} is at {FACTS['branch']['text']}, where the runs part")
    gdb.execute("info registers")
    gdb.execute("backtrace 12")
    flag = FACTS["flag"]
    address = flag_address()
    if address is None:
        say(f"the address of {flag['name']} does not follow from the registers here")
        return
    kind = TYPES.get(flag["size"], "unsigned char")
    value = int(gdb.parse_and_eval(f"*({kind} *){address:#x}"))
    say(f"{flag['name']} is {value:#x} at {address:#x}; the loop ends when {flag['exit_when']}")
    gdb.execute(f"watch *({kind} *){address:#x}")
    say("continue, and the watchpoint shows who writes it")


main()
