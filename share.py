# SPDX-License-Identifier: MIT
"""Makes the manual page and what shells complete, from the parser of the command line.

setup.py runs it when the package is built: `python share.py PACKAGES FOLDER`, with the folder that
holds the package and the one to write to.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import MagicMock

# Where each shell looks, below the environment.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/flagfinder",
    "zsh": "share/zsh/site-functions/_flagfinder",
    "fish": "share/fish/vendor_completions.d/flagfinder.fish",
}
MANUAL = "share/man/man1/flagfinder.1"
# What commands import and no parser needs: a build has none of them.
_NOT_NEEDED = ("numpy", "prompt_toolkit", "rich", "tree_sitter", "tree_sitter_bash")


class _Stand(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """A module that has any name."""
        stand: types.ModuleType = MagicMock(name=spec.name, __path__=[], __spec__=spec)
        return stand

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is in it."""


class _Absent(importlib.abc.MetaPathFinder):
    """Asked once nobody else has the module."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: types.ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """A stand for what no parser needs."""
        if fullname.partition(".")[0] not in _NOT_NEEDED:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Stand(), is_package=True)


def make(packages: Path, folder: Path) -> None:
    """Writes all of them."""
    sys.path.insert(0, str(packages))
    sys.meta_path.append(_Absent())
    import shtab
    from argparse_manpage.manpage import Manpage

    from flagfinder import _core
    from flagfinder.cli.command import build_parser

    parser = build_parser()
    texts = {place: shtab.complete(parser, shell=shell) for shell, place in COMPLETIONS.items()}
    page = Manpage(parser, format="single-commands-section")
    page.source = f"flagfinder {_core.VERSION}"
    page.manual = "flagfinder"
    page.description = "say why a program hangs, or which word a spinning one waits for"
    texts[MANUAL] = str(page)
    for place, text in texts.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
