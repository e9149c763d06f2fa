# SPDX-License-Identifier: MIT
"""``flagfinder watch``: who reads and writes a word of a process."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from flagfinder.cli.common import (
    ADDRESS,
    EXIT_FOUND,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_FOUND,
    FRIDA_HARM,
    PID,
    SECONDS,
    TID,
    VERBS,
    WORD_SIZE,
    Subparsers,
    add_environment,
    add_verb,
)
from flagfinder.flags.flag_file import read_flag
from flagfinder.report.terminal import Terminal
from flagfinder.shared.errors import UsageError
from flagfinder.shared.private_file import create_private
from flagfinder.shared.visible import quote_command
from flagfinder.watch.flag import flag_sites, flag_word
from flagfinder.watch.watch import (
    BACKENDS,
    Watch,
    WatchRequest,
    address_word,
    expression_word,
    site,
    symbol_word,
)
from flagfinder.watch.with_frida import FridaProgram

if TYPE_CHECKING:
    from flagfinder.watch.fields import SiteRequest, WatchFields, WordRequest


_EXAMPLES = """\
  flagfinder watch 4711 app done
  flagfinder watch 4711 libgomp.so.1 gomp_managed_threads --until write
  flagfinder watch 4711 --expr 'pool->workers[2].state' --reads --duration 10
  flagfinder watch 4711 --flag spin.flags.json#1 -o events.jsonl
  flagfinder watch 4711 --address 0x7f12a0001040 --size 4 --until 'value==1'
  flagfinder watch 4711 --site app+0x12f4
  flagfinder watch 4711 --flag spin.flags.json#1 --all-objects
  flagfinder watch app done --backend frida -- ./app --bad
  flagfinder watch --flag spin.json#1 --all-objects --backend frida -o events.jsonl -- ./app --bad

Only writes are trapped unless --reads is given: trapping reads slows a spinning reader down ten
thousand times. Each trap costs the thread that made the access about 10 microseconds. Up to four
words at once; sites need no debug register. Without the right to use BPF, --backend frida starts
the program and watches it from before its main on. It goes on unwatched once the watch ends. With
--json-lines and in FILE: a header, one line for each event, a line of totals with the losses. With
--json, when the watch ends: one object, the header with `events` and `end`.

exit codes: 0 events were seen, 1 none, 2 not found or can't be watched, 69 unavailable, 77 no
permission, 130 Ctrl-C"""

_MOST = 2  # names that are no PID

_SITE = re.compile(r"^(.+)\+(0x[0-9a-fA-F]+)$")
_ACCESS_PATH = re.compile(r"[.\[*]|->")


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "watch",
        VERBS["watch"],
        _EXAMPLES,
        run,
        usage="flagfinder watch PID [IMAGE SYMBOL] [options]\n"
        "       flagfinder watch [IMAGE SYMBOL] --backend frida [options] -- PROGRAM ARGS",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="PID [IMAGE SYMBOL]",
        help="the process, unless PROGRAM is to be started; file name or path of the program or a "
        "library; a variable in it, or an access path",
    )
    what = parser.add_argument_group("what to watch (repeatable)")
    what.add_argument(
        "--address",
        type=ADDRESS,
        action="append",
        default=[],
        metavar="0x..",
        help="a word, with --size",
    )
    what.add_argument(
        "--size",
        type=WORD_SIZE,
        choices=(1, 2, 4, 8),
        help="bytes of the word: 1, 2, 4 or 8 (default: the variable's)",
    )
    what.add_argument(
        "--expr", action="append", default=[], metavar="PATH", help="as in 'pool->workers[2].state'"
    )
    what.add_argument(
        "--flag",
        action="append",
        default=[],
        metavar="FILE#RANK",
        help="a flag that diff or spin printed with --json",
    )
    what.add_argument(
        "--site",
        type=_site,
        action="append",
        default=[],
        metavar="MODULE+0x..",
        help="an instruction, for any object",
    )
    parser.needs(
        "--size",
        "is about a variable, an --expr or an --address",
        lambda o: bool(_names(o)[2] or o.expr or o.address),
    )
    what.add_argument(
        "--all-objects", action="store_true", help="with --flag: hook the code that uses it instead"
    )
    what.add_argument("--thread", type=TID, metavar="TID", help="whose thread-local variable")
    parser.needs("--all-objects", "goes with --flag", lambda o: o.flag)
    parser.needs(
        "--thread",
        "is about a variable, an --expr or a --flag",
        lambda o: bool(_names(o)[2] or o.expr or o.flag),
    )
    parser.needs("--thread", "is about a running process", lambda o: o.command is None)
    parser.add_argument("--reads", action="store_true", help="reads too, not only writes")
    parser.needs("--reads", "is about words, and only instructions are named", _names_words)
    parser.add_argument(
        "--until",
        metavar="WHAT",
        help="stop at: write, read, value==N (!= < <= > >=), or COUNT events",
    )
    parser.add_argument("--duration", type=SECONDS, help="stop after SECONDS")
    parser.add_argument("-o", "--output", type=Path, help="write the events there, as JSON lines")
    parser.add_argument(
        "--json-lines",
        action="store_true",
        help="print the events as they come, one JSON object a line, as -o writes them",
    )
    parser.needs(
        "--json-lines",
        "is another form of the same as --json",
        lambda o: not (o.json or o.json_file),
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        help="who traps the accesses: perf, BPF on hardware breakpoints; lldb, which stops the "
        "process at each (default: perf, and lldb where perf can't be used); frida, in a PROGRAM "
        "that it starts",
    )
    add_environment(parser)
    parser.needs("--env", "is for a PROGRAM that is started", lambda o: o.command is not None)


def _names(options: argparse.Namespace) -> tuple[int | None, str | None, str | None]:
    """PID IMAGE SYMBOL, or IMAGE SYMBOL where a program is started; what is not named is None."""
    names, pid = list(options.names), None
    if options.command is None:
        if not names:
            options.leaf.error("the following arguments are required: PID")
        try:
            pid = PID(names.pop(0))
        except argparse.ArgumentTypeError as error:
            options.leaf.error(f"argument PID: {error}")
    if len(names) > _MOST:
        options.leaf.error(f"unknown: {quote_command(*names[_MOST:])}")
    image, symbol = [*names, None, None][:_MOST]
    return pid, image, symbol


def _names_words(options: argparse.Namespace) -> bool:
    return bool(
        _names(options)[2]
        or options.expr
        or options.address
        or (options.flag and not options.all_objects)
    )


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    inside = trapper = getattr(options, "trapper", None)  # a debugger that handles Ctrl-C itself
    pid, _, _ = _names(options)
    program = None
    with contextlib.ExitStack() as stack:
        if _starts_program(options):
            # Its stdout, as with --json, where ours is for programs.
            program = stack.enter_context(
                FridaProgram(
                    options.command,
                    options.env,
                    sys.stderr.fileno() if options.json_lines else None,
                )
            )
            pid, options.backend, trapper = program.pid, "frida", program.trap
        assert pid is not None
        request = _request(options, pid)
        file = stack.enter_context(_created(options.output)) if options.output else None
        watch = stack.enter_context(Watch(pid, request, options.backend, trapper))
        for note in watch.notes:
            terminal.warning(note)
        if not inside:
            previous = signal.signal(signal.SIGINT, lambda *_: watch.interrupt())
            stack.callback(signal.signal, signal.SIGINT, previous)
        status = _watch(watch, options, terminal, file)
    if program is not None and program.process.poll() is None:
        terminal.message(f"process {program.pid} goes on, unwatched")
    return status


def _starts_program(options: argparse.Namespace) -> bool:
    frida = options.backend == "frida"
    if options.command is None and frida:
        raise UsageError(
            "--backend frida can't watch a running process",
            FRIDA_HARM,
            "Let it start the program: flagfinder watch .. --backend frida -- PROGRAM ARGS. Or "
            "leave --backend out, or write --backend lldb where BPF may not be used.",
        )
    if options.command is not None and not (options.command and (frida or options.backend is None)):
        raise UsageError(
            "There is no program to start"
            if frida
            else f"--backend {options.backend} starts no program",
            "there is nothing behind --" if frida else "there is a program behind --",
            "flagfinder watch IMAGE SYMBOL --backend frida -- PROGRAM ARGS, or flagfinder watch "
            "PID IMAGE SYMBOL.",
        )
    return options.command is not None


def _created(path: Path) -> TextIO:
    return io.TextIOWrapper(create_private(path), encoding="utf-8")


def _watch(
    watch: Watch, options: argparse.Namespace, terminal: Terminal, file: TextIO | None
) -> int:
    from flagfinder.report.watch_report import LiveEvents, show_header, show_summary

    live = LiveEvents(terminal, watch.header)
    is_shown = not (options.json or options.json_lines)
    events: list[str] = []

    def write(lines: list[str], are_events: bool = True) -> None:
        if lines and file is not None:
            file.write("\n".join(lines) + "\n")
            file.flush()
        if options.json_lines and lines:
            terminal.raw("\n".join(lines))
            terminal.flush()
        elif options.json and are_events:
            events.extend(lines)
        elif is_shown and are_events:
            live.show(lines)
        terminal.check_read()

    try:
        if is_shown:
            show_header(terminal, watch.header)
        write([json.dumps(watch.header, ensure_ascii=False)], are_events=False)
        for lines in watch.batches(options.duration):
            write(lines)
    except KeyboardInterrupt:
        write(watch.finish())
    summary = watch.summary()
    write([json.dumps(summary)], are_events=False)
    if options.json:
        fields: WatchFields = {
            **watch.header,
            "events": [json.loads(event) for event in events],
            "end": summary,
        }
        terminal.answer(fields)
    if is_shown:
        live.close()
        show_summary(terminal, summary, options.output)
    if summary["reason"] == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_FOUND if summary["events"] else EXIT_NOTHING_FOUND


def _request(options: argparse.Namespace, pid: int) -> WatchRequest:
    _, image, symbol = _names(options)
    size, thread = options.size, options.thread
    words: list[WordRequest] = []
    sites: list[SiteRequest] = [site(module, offset) for module, offset in options.site]
    if symbol is not None:
        by_path = _ACCESS_PATH.search(symbol)
        words.append(
            expression_word(symbol, image, size, thread)
            if by_path
            else symbol_word(image, symbol, size, thread)
        )
    elif image is not None:
        raise UsageError(
            "There is an image but no variable",
            f"IMAGE is {image}",
            "Write `flagfinder watch PID IMAGE SYMBOL`, or --expr NAME to look in all images.",
        )
    words += [
        expression_word(text, None, size, thread)
        if _ACCESS_PATH.search(text)
        else symbol_word(None, text, size, thread)
        for text in options.expr
    ]
    if options.address and size is None:
        raise UsageError("--address needs a size", "--size is missing", "Add --size 1, 2, 4 or 8.")
    words += [address_word(address, size) for address in options.address]
    for spec in options.flag:
        flag = read_flag(spec)
        if options.all_objects:
            sites += flag_sites(flag)
        else:
            words.append(flag_word(flag, pid, thread))
    if not words and not sites:
        raise UsageError(
            "There is nothing to watch",
            "no variable, address, expression, flag or site was named",
            "`flagfinder watch --help` shows the ways to name it; `flagfinder spin PID` finds out "
            "what to watch.",
        )
    return WatchRequest(words, sites, options.reads, options.until)


def _site(text: str) -> tuple[str, int]:
    match = _SITE.match(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no site; write it like app+0x12f4")
    offset = ADDRESS(match[2])
    assert offset is not None
    return match[1], offset
