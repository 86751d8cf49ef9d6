"""Magics: each parses its line, calls the public API once, and shows what it got.

`load` adds the magics, displays, settings and completions to a shell; it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, cast
from weakref import WeakKeyDictionary

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import needs_local_scope, no_var_expand, output_can_be_silenced

from bls_notebook.capabilities import MissingCapabilityError, registry
from bls_notebook.capabilities import load as imported

from .arguments import HelpWanted
from .cell_errors import add_handler, hear_interrupts
from .cell_log import show_logs
from .completion.completer import add_completion, add_tooltips
from .debugger import help_debugger
from .magic import Magic, magic_named
from .notebook import Notebook, add_formatters
from .settings import BLSNotebook

__all__ = ["load", "unload"]

_added: WeakKeyDictionary[InteractiveShell, Callable[[], None]] = WeakKeyDictionary()


def load(shell: InteractiveShell) -> None:
    """Add everything to a shell; the second time, nothing."""
    if shell not in _added:
        _added[shell] = _add_magics(shell)


def unload(shell: InteractiveShell) -> None:
    """Remove it again; models stay loaded."""
    _added.pop(shell, lambda: None)()


def _add_magics(shell: InteractiveShell) -> Callable[[], None]:
    added = ExitStack()
    untyped = cast(Any, shell)  # as much of it is
    settings = BLSNotebook(parent=shell)
    notebook = Notebook(shell, settings)
    registry().scan()
    # The magics of capabilities that are not installed say so.
    for name in [*registry().keys("magics"), *registry().missing_keys("magics")]:
        kind, bare = "cell" if name.startswith("%%") else "line", name.lstrip("%")
        function = output_can_be_silenced(needs_local_scope(no_var_expand(_MagicFunction(notebook, name))))
        untyped.register_magic_function(function, kind, bare)
        added.callback(untyped.magics_manager.magics[kind].pop, bare, None)
    of_capabilities = [
        imported(capability.absolute(target)) for capability in registry().enabled() for target in capability.shell
    ]
    for add in (
        add_formatters,
        add_handler,
        show_logs,
        add_completion,
        add_tooltips,
        help_debugger,
        hear_interrupts,
        *of_capabilities,
    ):
        added.callback(add(notebook))
    untyped.configurables.append(settings)
    added.callback(lambda: settings in untyped.configurables and untyped.configurables.remove(settings))
    return added.close


class _MagicFunction:  # its docstring is the magic's help
    def __init__(self, notebook: Notebook, name: str) -> None:
        self._notebook, self._name = notebook, name

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self._magic().parser.format_help()

    def __call__(self, line: str, cell: str = "", local_ns: Mapping[str, Any] | None = None) -> Any:
        __tracebackhide__ = True
        text = line.strip()
        if not self._name.startswith("%%") and text.endswith(";"):
            text = text[:-1]  # IPython shows nothing then, as after any line
        magic = self._magic()
        try:
            return magic.run(self._notebook, text, cell, self._notebook.variables(local_ns))
        except HelpWanted as help_text:
            print(help_text)
            return None

    def _magic(self) -> Magic:
        try:
            return magic_named(self._name)
        except MissingCapabilityError as error:
            raise UsageError(str(error)) from None
