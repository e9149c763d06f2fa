# SPDX-License-Identifier: MIT
"""Text from files, processes and symbols, made fit for a terminal and for a shell.

A terminal acts on control characters, and bidirectional overrides show text in another order than
it has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

# C0 controls, DEL and C1 controls; line and paragraph separators; Bidi_Control of Unicode; bytes
# that are no UTF-8.
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# What GitHub takes for a command of the job: `::` where a line begins, and `##[` anywhere.
_COMMAND = re.compile(r"^(\s*:)(?=:)|##(?=\[)", re.MULTILINE)
# Characters of Unicode's basic plane that XML 1.0 forbids and that do not act.
_NOT_IN_XML = re.compile("[\ufffe\uffff]")


def visible(text: str, keep: str = "") -> str:
    r"""The text with ``\uXXXX`` in place of each character that a terminal acts on, but for those
    in ``keep``.

    JSON that was valid stays so, and means the same: such characters stand in its strings only.
    """
    return _ACTING.sub(
        lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text
    )


def on_github() -> bool:
    """Whether a job of GitHub's reads what is printed."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def without_commands(text: str) -> str:
    """The text, in which GitHub sees no command: names of processes and files may hold some."""
    return _COMMAND.sub(lambda found: f"{found[0]} ", text) if on_github() else text


def fit_for_xml(text: str) -> str:
    """The text without what XML forbids, or shows in another order than it has."""
    return _NOT_IN_XML.sub("\ufffd", visible(text, keep="\n\t"))


def as_unicode(words: Iterable[str]) -> list[str]:
    """The words as files and reports store them: U+FFFD in place of bytes that are no UTF-8."""
    return [word.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for word in words]


def quote_command(*words: str | os.PathLike[str]) -> str:
    """A command as it can be pasted into a shell: one line, without characters that a terminal acts
    on.
    """
    return " ".join(_quoted(os.fspath(word)) for word in words)


def _quoted(word: str) -> str:
    if not _ACTING.search(word):
        import shlex  # noqa: PLC0415

        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_ACTING.sub(_as_bytes, plain)}'"


def _as_bytes(found: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in found[0].encode("utf-8", "surrogateescape"))
