"""Adds the magics, displays, settings and completions to a shell, and takes them away again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import needs_local_scope, no_var_expand, output_can_be_silenced

from .completion.suggest import magic_matcher
from .failing import add_handler
from .memory_watch import MemoryWatch
from .notebook import Notebook
from .output.cell_log import CellLog
from .output.formatters import add_formatters, remove_formatters
from .parsing.arguments import HelpWanted
from .settings import BLSNotebook
from .table import MAGICS, Magic

__all__ = ["Extension"]


class Extension:
    """What bls_notebook adds to one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = cast(Any, shell)  # much of it is untyped
        settings = BLSNotebook(parent=shell)
        self._notebook = Notebook(shell, settings)
        for magic in MAGICS:
            self._shell.register_magic_function(_function(self._notebook, magic), magic.kind, magic.name)
        self._shell.configurables.append(settings)
        add_formatters(self._notebook)
        self._give_back_handler = add_handler(self._notebook)
        self._memory = MemoryWatch(self._notebook)
        self._log = CellLog(self._notebook)
        self._log.install()
        self._shell.Completer.custom_matchers.append(magic_matcher)

    def remove(self) -> None:
        """Take it all away; models stay loaded."""
        for magic in MAGICS:
            self._shell.magics_manager.magics[magic.kind].pop(magic.name, None)
        if self._notebook.settings in self._shell.configurables:
            self._shell.configurables.remove(self._notebook.settings)
        remove_formatters(self._notebook)
        self._give_back_handler()
        self._memory.remove()
        self._log.remove()
        matchers = self._shell.Completer.custom_matchers
        if magic_matcher in matchers:
            matchers.remove(magic_matcher)


def _function(notebook: Notebook, magic: Magic) -> Callable[..., Any]:
    @functools.wraps(magic.run)
    def function(line: str, cell: str = "", local_ns: Mapping[str, Any] | None = None) -> Any:
        __tracebackhide__ = True
        text = line.strip()
        if magic.kind == "line" and text.endswith(";"):
            text = text[:-1]  # IPython shows nothing then, as after any line
        try:
            return magic.run(notebook, text, cell, notebook.variables(local_ns))
        except HelpWanted as help_text:
            print(help_text)
            return None

    function.__doc__ = magic.parser.format_help()
    return output_can_be_silenced(needs_local_scope(no_var_expand(function)))
