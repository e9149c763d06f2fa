# SPDX-License-Identifier: MIT
"""Records programs with Frida's Stalker.

In: a command line. Out: a ``Recording``, as with DynamoRIO. ``control.py`` runs in a process beside
the program and brings the agent into it; its messages come through a pipe.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flagfinder.record.recorder import (
    POOL_PLACEHOLDER,
    Launch,
    Progress,
    Recording,
    RecordOptions,
    run_launch,
)
from flagfinder.record.tracer_build import sources_dir
from flagfinder.shared.environment import handed_on
from flagfinder.shared.errors import (
    FlagfinderError,
    PermissionDeniedError,
    TargetError,
    UnavailableError,
    UsageError,
)
from flagfinder.shared.places import PACKAGE
from flagfinder.shared.start import python
from flagfinder.shared.target import check_frida

_CONTROL = Path(__file__).with_name("control.py")
_OTHERS_WORK = "Recording with DynamoRIO (the default) and reading traces work."
# After the recording there is nothing to say that was not said before.
_PATIENCE = 5.0
_ERRORS: dict[str, type[FlagfinderError]] = {
    "permission": PermissionDeniedError,
    "target": TargetError,
    "unavailable": UnavailableError,
}


def record(
    command: Sequence[str],
    path: Path,
    options: RecordOptions,
    progress: Callable[[Progress], None] | None,
) -> Recording:
    """Runs ``command`` and records it.

    Raises UsageError for options that need DynamoRIO, TargetError for a program into which no
    library can be loaded, UnavailableError without Frida or when it can't get into the program.
    """
    _check_options(options)
    check_frida(command, _OTHERS_WORK)
    # Every command would pay for this import, which brings the e-mail package along.
    from importlib import metadata  # noqa: PLC0415

    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    agent = sources_dir() / "frida_agents" / "tracer.js"
    started = python(os.fspath(_CONTROL), POOL_PLACEHOLDER)
    brought = [str(writer), os.fspath(library()), os.fspath(agent)]
    recording, failure = None, None
    try:
        with handed_on(options.environment) as environment:
            words = [*started, str(environment), *brought, *command]
            launch = Launch("frida", words, f"frida-{metadata.version('frida')}")
            recording = run_launch(command, path, options, launch, progress)
    except FlagfinderError as error:
        failure = error
    finally:
        os.close(writer)
        said = _listen(reader)
        os.close(reader)
    if recording is not None and recording.flow_bytes:
        return recording
    if said is not None:
        raise _ERRORS[said["kind"]](
            said["what"], said["found"], said["fix"], _OTHERS_WORK
        ) from failure
    if recording is None:
        assert failure is not None
        raise failure
    return recording


def library() -> Path:
    """The native half, which the agent loads into the program. Raises UnavailableError when the
    package has none.
    """
    found = sorted(PACKAGE.glob("_frida_tracer*.so"))
    if not found:
        raise UnavailableError(
            "The Frida tracer's library is missing",
            f"no _frida_tracer*.so in {PACKAGE}",
            "Reinstall with `pip install --force-reinstall flagfinder`.",
            _OTHERS_WORK,
        )
    return found[0]


def _check_options(options: RecordOptions) -> None:
    for given, name in (
        (options.follow_children, "--follow-children"),
        (options.values_in, "--values-in"),
    ):
        if given:
            raise UsageError(
                f"The frida tracer does not know {name}",
                "it records one process, and all of its code",
                f"Leave {name} out, or record with --tracer dynamorio.",
                _OTHERS_WORK,
            )


def _listen(reader: int) -> dict[str, str] | None:
    """Why ``control.py`` could not get into the program; None if it could."""
    text = b""
    until = time.monotonic() + _PATIENCE
    while (left := until - time.monotonic()) > 0 and select.select([reader], [], [], left)[0]:
        more = os.read(reader, 65536)
        if not more:
            break
        text += more
    for line in text.splitlines():
        failure: dict[str, str] = json.loads(line)
        return failure
    return None
