# SPDX-License-Identifier: MIT
"""JUnit XML of a guarded command: one testcase.

In: how the command ended. Out: XML that is valid whatever the names in it hold.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from typing import Literal

from flagfinder.shared.visible import visible

# Characters of Unicode's basic plane that XML 1.0 forbids and `visible` does not replace.
_FORBIDDEN = re.compile("[\ufffe\uffff]")

Problem = tuple[Literal["failure", "error"], str, str, str]
"""Tag, type, one line, and all there is to say."""


def junit_xml(command: str, seconds: float, problem: Problem | None) -> bytes:
    """A test suite of one testcase; None: it passed."""
    time = f"{seconds:.3f}"
    suites = xml.Element("testsuites")
    suite = xml.SubElement(
        suites, "testsuite", name="flagfinder guard", tests="1", skipped="0", time=time
    )
    for tag in ("failure", "error"):
        suite.set(f"{tag}s", str(int(problem is not None and problem[0] == tag)))
    case = xml.SubElement(
        suite, "testcase", classname="flagfinder.guard", name=_fit(command), time=time
    )
    if problem is not None:
        tag, kind, message, text = problem
        xml.SubElement(case, tag, type=kind, message=_fit(message)).text = _fit(text)
    xml.indent(suites)
    written: bytes = xml.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _fit(text: str) -> str:
    """The text without what XML forbids, or shows in another order than it has."""
    return _FORBIDDEN.sub("\ufffd", visible(text, keep="\n\t"))
