"""Run a magic or a verb of ``%tritonrepo``: parse its line, call its function, and display the result."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, cast

from IPython.core.error import UsageError

from bls_notebook.capabilities import registry
from bls_notebook.operations import OperationSpec, UsageProblem

from .arguments import HelpWanted, Parser, Variables, expanded
from .cell_errors import fail_on, reported
from .notebook import Notebook

_REPOSITORY = "%tritonrepo"


@dataclass(frozen=True)
class MagicCall:
    """One use of a magic or verb, for functions that need the notebook; `cell` is the text below a cell magic.

    `quiet` is true if the line magic will show nothing.
    """

    notebook: Notebook
    parser: Parser
    line: str
    cell: str
    variables: Variables
    quiet: bool = False

    @property
    def name(self) -> str:
        """The magic with its signs, such as ``%bls``; of a verb with ``%tritonrepo``."""
        return self.parser.prog

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError of one line."""
        self.parser.error(message)


def parser_of(name: str, line: str = "") -> tuple[Parser, str]:
    """Return the parser of a magic, or of the verb that the line begins with, and the line without the verb.

    Raises as `Registry.load` does.
    """
    verb, _, rest = line.partition(" ")
    if name == _REPOSITORY and verb in registry().keys("verbs"):
        return Parser(registry().load("verbs", verb), f"{name} {verb}"), rest
    return (_Repository if name == _REPOSITORY else Parser)(registry().load("magics", name), name), line


class _Repository(Parser):
    def format_help(self) -> str:
        """Return the verbs, then each verb's own help."""
        verbs = {name: cast(OperationSpec, registry().load("verbs", name)) for name in registry().keys("verbs")}
        lines = ["usage: %tritonrepo [VERB] [arguments]", "", f"{self.description}", "", "verbs:"]
        lines += [f"  {name:8} {verb.summary}" for name, verb in verbs.items()]
        return "\n\n".join(["\n".join(lines), *(parser_of(self.prog, name)[0].format_help() for name in verbs)])


def run(notebook: Notebook, name: str, line: str, cell: str, variables: Variables) -> Any:
    """Run a magic on a line; return the value that the cell displays."""
    __tracebackhide__ = True
    if name == _REPOSITORY:
        verb, _, rest = line.partition(" ")
        line = f"{expanded(verb, variables) or 'list'} {rest}"
    parser, line = parser_of(name, line)
    if parser.prog == _REPOSITORY:
        _no_verb(parser, line.split()[0])
    operation = parser.operation
    options = parser.parse(line, variables)
    is_cell = name.startswith("%%")
    save, quiet = (None, False) if is_cell else (options.pop("save", None), options.pop("quiet", False))
    notebook.stale.ask([options["model"]] if isinstance(options.get("model"), str) else [], notebook.cell_number)
    function: Callable[..., Any] = operation.call
    if operation.notebook is not None:
        function = partial(operation.notebook, MagicCall(notebook, parser, line, cell, variables, quiet))
    try:
        # The errors of a cell's own code are displayed as for any cell.
        with nullcontext() if is_cell else reported(notebook):
            value = function(**options)
    except UsageProblem as problem:
        parser.error(str(problem))
    notebook.save(parser.prog, value, save)
    fail_on(notebook, operation.problems(value), value)
    return None if quiet else value


def _no_verb(parser: Parser, word: str) -> NoReturn:
    if word in ("-h", "--help"):
        raise HelpWanted(parser.format_help())
    verbs = registry().keys("verbs")
    close = difflib.get_close_matches(word, verbs, 1)
    guess = f" (did you mean {close[0]}?)" if close else ""
    raise UsageError(f"%tritonrepo: unknown verb {word!r}{guess}; the verbs are {', '.join(verbs)}.")
