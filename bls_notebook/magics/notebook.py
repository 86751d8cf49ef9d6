"""The notebook that magics run in: its shell, settings, variables and displays.

The value of a cell gets its full display; inside lists and dicts it has its short `repr`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

import bls_notebook as bls
from bls_notebook import BLSError, Response
from bls_notebook import display as displays
from bls_notebook.capabilities import Drawing, registry
from bls_notebook.records.base import Record
from bls_notebook.records.messages import MessageRecord
from bls_notebook.repository.host import Host

from .result_lists import Records, Responses, Streams, responses_in
from .settings import BLSNotebook
from .stale_outputs import StaleOutputs


@dataclass
class Notebook:
    """A shell in which the magics are loaded."""

    shell: InteractiveShell
    settings: BLSNotebook
    definitions: dict[object, tuple[object, bool]] = field(default_factory=dict)
    """The definition in each %%tritonmodel cell, and whether it changed nothing; see `with_changes_to_show`."""
    definition_lines: dict[str, str] = field(default_factory=dict)
    """The line after ``%%tritonmodel`` in the cell of each model."""
    recorded: dict[type, Any] = field(default_factory=dict)
    """The last record of each class that a magic made, oldest first."""
    state: dict[str, Any] = field(default_factory=dict)
    """Data of capabilities; each key begins with the capability's name."""
    on_answer: list[Callable[[Any], object]] = field(default_factory=list)
    """Functions of capabilities that receive each result of %bls."""
    stale: StaleOutputs = field(default_factory=StaleOutputs)
    said: dict[str, str] = field(default_factory=dict)
    """Notes that `say_once` has shown, each with the line of the magic that showed it."""
    latest: Callable[[], Any] | None = None  # a weak reference to the last response of %bls
    debugged: Callable[[], object] = lambda: None
    """A reference to the response, or list of responses, with the error at which ``%debug`` opens."""
    debugged_process: bool = False
    """Whether that error was raised in a process, where no debugger opens."""

    def variables(self, local: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the variables for expressions: the notebook's and a calling function's."""
        user: dict[str, Any] = self.shell.user_ns
        return user if local is None or local is user else {**user, **local}

    def assign(self, name: str | None, value: object) -> None:
        """Assign a value to a variable of the notebook; without a name, do nothing."""
        if name:
            self.shell.user_ns[name] = value

    def answered(self, result: Response | Responses | Streams) -> None:
        """Pass a result to `on_answer`; keep a weak reference to its last response, such as for ``%blsinspect``."""
        responses = responses_in(result)
        self.latest = weakref.ref(responses[-1] if responses else result)
        for hear in self.on_answer:
            hear(result)

    def remember(self, recorded: Any) -> None:
        """Keep the record of a magic's result in `recorded`, until the next record of its class."""
        record = recorded if isinstance(recorded, Record) else getattr(recorded, "record", None)
        if record is None and isinstance(recorded, (list, tuple)):
            record = getattr(recorded, "records", [getattr(item, "record", None) for item in recorded])
        if record is not None:
            self.recorded.pop(type(record), None)
            self.recorded[type(record)] = record

    @property
    def cell_number(self) -> int:
        """The number of the running cell, as displayed beside it."""
        # Not shell.execution_count, which newer versions of IPython increase before the cell runs.
        return int(self.shell.displayhook.prompt_count)

    def draw(self, value: object) -> displays.Display:
        """Return the display of a record, a response or a list, as the settings say."""
        record = _recorded(value)
        display = self._drawn(record, value is not None and value is self.debugged())
        return self.stale.marked(display, record, Host(bls.current_repository()), self.cell_number)

    def _drawn(self, value: Any, opens: bool) -> displays.Display:
        width = self.settings.width
        if isinstance(value, Responses):
            records = [self._chosen(record, opens) for record in value.records]
            stream = value.stream or not records
            running, texts = value.running, value.texts
            return displays.render(records, stream=stream, running=running, width=width, texts=texts)
        if isinstance(value, Records):
            items = value.streams if isinstance(value, Streams) else value
            return displays.render([self._chosen(item, opens) for item in items], width=width, empty=value.of)
        return displays.render(self._chosen(value, opens), width=width, live=self.settings.widgets)

    def _chosen(self, value: Any, opens: bool = False) -> Any:
        if not isinstance(value, Record):
            return value
        record: Any = value
        if opens and getattr(record, "error", None) is not None:
            record = replace(record, error=replace(record.error, debug=True, process=self.debugged_process))
        is_hidden = getattr(record, "warnings", ()) and not self.settings.show_warnings
        return replace(record, warnings=()) if is_hidden else record

    def show(self, value: object) -> None:
        """Display a value now, in the cell's output."""
        self.publish(value if isinstance(value, displays.Display) else self.draw(value))

    def say(self, text: str, kind: str = "done", hint: str = "") -> None:
        self.show(MessageRecord(text, kind, hint))

    def say_once(self, line: str, text: str, hint: str) -> None:
        """Show a note, unless another magic line has shown it before: a cell that runs again has the same output."""
        if self.said.setdefault(text, line) == line:
            self.say(text, "info", hint)

    def publish(self, display: displays.Display, display_id: str = "", update: bool = False) -> None:
        """Send a display to the notebook; with an id, a later call with `update` can replace it."""
        transient: dict[str, str] = {"display_id": display_id} if display_id else {}
        bundle: dict[str, Any] = display._repr_mimebundle_()
        self.shell.display_pub.publish(data=bundle, metadata={}, transient=transient, update=update)

    def save(self, magic: str, recorded: Any, file: str | None) -> None:
        """Write a magic's result to a file (``--save``), if one is given."""
        if not file:
            return
        try:
            path = Path(file).expanduser()
            name = path.name.lower()
            path = _save_page(recorded, path) if name.endswith(".html") else recorded.save(path)
        except bls.BLSError as error:
            self.say(f"{magic}: --save: {file}: {error}", "error")
        else:
            hint = "" if name.endswith((".trace.json", ".pbtxt", ".html")) else f"bls.open_file({file!r}) reads it"
            self.say(f"saved to {path.name}", hint=hint)

    @property
    def has_kernel(self) -> bool:
        """True in a kernel, whose displays can be replaced; False in a terminal."""
        return getattr(self.shell, "kernel", None) is not None


def _save_page(recorded: Any, path: Path) -> Path:
    """Write the display of a result as an HTML page."""
    shown = displays.render(getattr(recorded, "record", recorded)).html
    page = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>bls_notebook</title>\n{shown}\n</html>\n'
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise bls.BLSError(f"the page cannot be written: {error}") from None
    return path


def _recorded(value: Any) -> Any:
    if isinstance(value, Response):
        return value.summarized()
    if isinstance(value, bls.ModelRepository):
        return Records(value.index())
    entry = registry().drawing(type(value))
    return value.record if entry is not None and entry[1] == Drawing() else value


def add_formatters(notebook: Notebook) -> Callable[[], None]:
    """Register displays of responses and records in the shell; return a function that removes them."""

    def bundle(value: Any, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        try:
            return notebook.draw(value)._repr_mimebundle_()
        except BLSError:  # such as a memory recording that has not started
            raise NotImplementedError from None

    def text(value: Any, printer: Any, cycle: bool) -> None:
        is_nested = len(printer.stack) > 1
        printer.text(repr(value) if is_nested else notebook.draw(value).text)

    def skip_if_shown(responses: Responses) -> None:
        if responses.shown_in != notebook.cell_number:
            raise NotImplementedError  # tells IPython to use the next formatter

    formatter = notebook.shell.display_formatter
    assert formatter is not None  # every shell creates one
    bundles, texts = formatter.mimebundle_formatter, formatter.formatters["text/plain"]
    first = formatter.ipython_display_formatter
    # By name, because most classes are imported on first use.
    names = [
        target.replace(":", ".")
        for target, (_, drawing) in registry().drawings().items()
        if drawing.document or not drawing.many
    ]
    types: list[type | str] = [*names, Records]
    for kind in types:
        bundles.for_type(kind, bundle)
    texts.for_type(Records, text)  # otherwise IPython would print the list
    first.for_type(Responses, skip_if_shown)

    def remove() -> None:
        for kind in types:
            bundles.pop(kind, None)
        texts.type_printers.pop(Records, None)
        first.type_printers.pop(Responses, None)

    return remove
