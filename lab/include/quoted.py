# SPDX-License-Identifier: MIT
"""Prints a program that a test holds in texts: ``python quoted.py TEST.py NAME ..`` prints the
texts of these names, one after the other.
"""

import ast
import sys
from pathlib import Path

texts = {
    target.id: node.value.value
    for node in ast.parse(Path(sys.argv[1]).read_text(encoding="utf-8")).body
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    for target in node.targets
    if isinstance(target, ast.Name) and isinstance(node.value.value, str)
}
sys.stdout.write("".join(texts[name] for name in sys.argv[2:]))
