"""The IPython extension.

`load` adds the magics, displays and settings to a shell, and what capabilities add; it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, cast
from weakref import WeakKeyDictionary

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import needs_local_scope, no_var_expand, output_can_be_silenced

from bls_notebook.capabilities import registry
from bls_notebook.lazy_names import load as imported
from bls_notebook.records.remedy_words import on_surface

from .arguments import HelpWanted
from .cell_errors import add_handler, hear_interrupts
from .cell_log import show_logs
from .debugger import help_debugger
from .magic import parser_of, run
from .notebook import Notebook, add_formatters
from .settings import BLSNotebook

__all__ = ["load", "unload"]

_added: WeakKeyDictionary[InteractiveShell, Callable[[], None]] = WeakKeyDictionary()


def load(shell: InteractiveShell) -> None:
    """Add the magics, displays and settings to a shell, and what capabilities add, if it lacks them."""
    if shell not in _added:
        _added[shell] = _add_magics(shell)


def unload(shell: InteractiveShell) -> None:
    """Remove everything that `load` added to a shell; models stay loaded."""
    _added.pop(shell, lambda: None)()


def _add_magics(shell: InteractiveShell) -> Callable[[], None]:
    added = ExitStack()
    untyped = cast(Any, shell)  # many of IPython's methods have no types
    settings = BLSNotebook(parent=shell)
    notebook = Notebook(shell, settings)
    registry().scan()
    added.enter_context(on_surface("notebook"))
    for name in registry().keys("magics"):
        kind, bare = "cell" if name.startswith("%%") else "line", name.lstrip("%")
        function = output_can_be_silenced(needs_local_scope(no_var_expand(_MagicFunction(notebook, name))))
        untyped.register_magic_function(function, kind, bare)
        added.callback(untyped.magics_manager.magics[kind].pop, bare, None)
    for add in (
        add_formatters,
        add_handler,
        show_logs,
        help_debugger,
        hear_interrupts,
        *[imported(each.absolute(target)) for each in registry().installed() for target in each.shell],
    ):
        added.callback(add(notebook))
    untyped.configurables.append(settings)
    added.callback(lambda: settings in untyped.configurables and untyped.configurables.remove(settings))
    return added.close


class _MagicFunction:  # `%magic?` shows its docstring
    def __init__(self, notebook: Notebook, name: str) -> None:
        self._notebook, self._name = notebook, name

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        from .overview import with_paths  # imports the displays

        return with_paths(parser_of(self._name)[0].format_help())

    def __call__(self, line: str, cell: str = "", local_ns: Mapping[str, Any] | None = None) -> Any:
        __tracebackhide__ = True
        text = line.strip()
        if not self._name.startswith("%%") and text.endswith(";"):
            text = text[:-1]  # IPython hides the value of a line that ends with a semicolon
        try:
            return run(self._notebook, self._name, text, cell, self._notebook.variables(local_ns))
        except HelpWanted as help_text:
            print(help_text)
            return None
