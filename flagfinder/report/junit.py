# SPDX-License-Identifier: MIT
"""JUnit XML of a guarded command: one testcase.

In: how the command ended. Out: XML that is valid whatever the names in it hold.
"""

from __future__ import annotations

import xml.etree.ElementTree as xml
from typing import Literal

from flagfinder.shared.visible import fit_for_xml

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
        suite, "testcase", classname="flagfinder.guard", name=fit_for_xml(command), time=time
    )
    if problem is not None:
        tag, kind, message, text = problem
        xml.SubElement(case, tag, type=kind, message=fit_for_xml(message)).text = fit_for_xml(text)
    xml.indent(suites)
    written: bytes = xml.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written + b"\n"
