"""Adds the magics, displays, settings and completions to a shell, and takes them away again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, cast

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import needs_local_scope, no_var_expand, output_can_be_silenced

from bls_notebook.inspection.inspectors import add_inspectors
from bls_notebook.lifetimes.memory_watch import watch_memory

from .completion.matcher import add_completion
from .completion.tooltip import add_tooltips
from .notebook import Notebook
from .output.cell_log import show_logs
from .output.formatters import add_formatters
from .parsing.arguments import HelpWanted
from .shell.debugger import help_debugger
from .shell.failing import add_handler
from .shell.interrupts import hear_interrupts
from .shell.settings import BLSNotebook
from .table import MAGICS, Magic


def add_magics(shell: InteractiveShell) -> Callable[[], None]:
    """Add everything to a shell; what this returns takes it away, and models stay loaded."""
    added = ExitStack()
    untyped = cast(Any, shell)  # as much of it is
    notebook = Notebook(shell, BLSNotebook(parent=shell))
    for magic in MAGICS:
        untyped.register_magic_function(_function(notebook, magic), magic.kind, magic.name)
        added.callback(untyped.magics_manager.magics[magic.kind].pop, magic.name, None)
    for add in (
        add_formatters,
        add_handler,
        watch_memory,
        show_logs,
        add_completion,
        add_tooltips,
        help_debugger,
        hear_interrupts,
        add_inspectors,
    ):
        added.callback(add(notebook))
    untyped.configurables.append(notebook.settings)
    added.callback(_drop, untyped.configurables, notebook.settings)
    return added.close


def _drop(known: list[Any], one: Any) -> None:
    if one in known:
        known.remove(one)


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
