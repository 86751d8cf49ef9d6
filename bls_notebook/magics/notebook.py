"""The notebook that magics run in: its shell, its settings, and what it shows.

The value of a cell is drawn in full; inside lists and dicts the short `repr` stays.
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

from .result_lists import Records, Responses, Streams, answers_of
from .settings import BLSNotebook


@dataclass
class Notebook:
    """A shell with the magics in it."""

    shell: InteractiveShell
    settings: BLSNotebook
    definitions: dict[object, tuple[object, bool]] = field(default_factory=dict)  # kept by `redefinition`
    definition_lines: dict[str, str] = field(default_factory=dict)
    """What stood behind ``%%tritonmodel`` in the cell of each model."""
    recorded: dict[type, Any] = field(default_factory=dict)
    """The last record of each class that a magic made, oldest first."""
    state: dict[str, Any] = field(default_factory=dict)
    """What capabilities keep in this notebook, by a name that begins with theirs."""
    on_draw: list[Callable[[displays.Display, Any], displays.Display]] = field(default_factory=list)
    """Functions of capabilities that add to what is drawn of a value."""
    latest: Callable[[], Any] | None = None  # the last response of %bls, while anybody has it
    debugged: Callable[[], object] = lambda: None
    """The response, or the list of them, whose first error ``%debug`` opens at."""

    def variables(self, local: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the variables that expressions see: the notebook's, and a calling function's."""
        user: dict[str, Any] = self.shell.user_ns
        return user if local is None or local is user else {**user, **local}

    def assign(self, name: str | None, value: object) -> None:
        """Give a variable of the notebook a value; without a name, do nothing."""
        if name:
            self.shell.user_ns[name] = value

    def answered(self, result: Response | Responses | Streams) -> None:
        """Take note of what a request gave: it is what one looks into without saying at what."""
        answers = answers_of(result)
        self.latest = weakref.ref(answers[-1] if answers else result)

    def remember(self, recorded: Any) -> None:
        """Keep the record of what a magic returned until the next of its kind, as `recorded`."""
        record = recorded if isinstance(recorded, Record) else getattr(recorded, "record", None)
        if record is None and isinstance(recorded, (list, tuple)):
            record = getattr(recorded, "records", [getattr(each, "record", None) for each in recorded])
        if record is not None:
            self.recorded.pop(type(record), None)
            self.recorded[type(record)] = record

    @property
    def cell_number(self) -> int:
        """The number of the cell that runs, as it is shown beside it."""
        # Not shell.execution_count, which newer versions of IPython raise before the cell runs.
        return int(self.shell.displayhook.prompt_count)

    def draw(self, value: object) -> displays.Display:
        """Draw a record, a response, or several, by the settings."""
        opens = value is not None and value is self.debugged()
        display = self._drawn(_recorded(value), opens)
        for add in self.on_draw:
            display = add(display, value)
        return display

    def _drawn(self, value: Any, opens: bool) -> displays.Display:
        width = self.settings.width
        if isinstance(value, Responses):
            records = [self._chosen(record, opens) for record in value.records]
            stream = value.stream or not records
            running, texts = value.running, value.texts
            return displays.render(records, stream=stream, running=running, width=width, texts=texts)
        if isinstance(value, Records):
            listed = value.streams if isinstance(value, Streams) else value
            return displays.render([self._chosen(each, opens) for each in listed], width=width, empty=value.of)
        return displays.render(self._chosen(value, opens), width=width, live=self.settings.widgets)

    def _chosen(self, value: Any, opens: bool = False) -> Any:
        if not isinstance(value, Record):
            return value
        record: Any = value
        if opens and getattr(record, "error", None) is not None:
            record = replace(record, error=replace(record.error, debug=True))
        warned = getattr(record, "warnings", ()) and not self.settings.show_warnings
        return replace(record, warnings=()) if warned else record

    def show(self, value: object) -> None:
        """Show something now, as part of the cell's output."""
        self.publish(value if isinstance(value, displays.Display) else self.draw(value))

    def say(self, text: str, kind: str = "done", hint: str = "") -> None:
        """Show one line."""
        from bls_notebook.records.repository import MessageRecord  # first needed here

        self.show(MessageRecord(text, kind, hint))

    def publish(self, display: displays.Display, display_id: str = "", update: bool = False) -> None:
        """Send a display to the notebook; with an id it can be replaced by an update later."""
        transient: dict[str, str] = {"display_id": display_id} if display_id else {}
        bundle: dict[str, Any] = display._repr_mimebundle_()
        self.shell.display_pub.publish(data=bundle, metadata={}, transient=transient, update=update)

    def save(self, magic: str, recorded: Any, file: str | None, readable: bool = False) -> None:
        """Write what a magic recorded to a file (``--save``); `readable`: `bls.load` reads its JSON."""
        if not file:
            return
        try:
            path = recorded.save(Path(file).expanduser())
        except bls.BLSError as error:
            self.say(f"{magic}: --save: {file}: {error}", "error")
        else:
            hint = f"bls.load({file!r}) reads it" if readable and not path.name.endswith(".trace.json") else ""
            self.say(f"saved to {path.name}", hint=hint)

    @property
    def has_kernel(self) -> bool:
        """Whether displays can be replaced: there is a frontend, not just a terminal."""
        return getattr(self.shell, "kernel", None) is not None


def _recorded(value: Any) -> Any:
    """What is drawn of a value: what is known of it, as plain data."""
    if isinstance(value, Response):
        return value.summarized()
    if isinstance(value, bls.ModelRepository):
        return Records(value.index())
    found = registry().drawing(type(value))
    return value.record if found is not None and found[1] == Drawing() else value


def add_formatters(notebook: Notebook) -> Callable[[], None]:
    """Make the shell draw responses and records; what this returns makes it forget them."""

    def bundle(value: Any, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        try:
            return notebook.draw(value)._repr_mimebundle_()
        except BLSError:  # a track that has not begun
            raise NotImplementedError from None

    def text(value: Any, printer: Any, cycle: bool) -> None:
        inside = len(printer.stack) > 1
        printer.text(repr(value) if inside else notebook.draw(value).text)

    def shown_while_they_came(responses: Responses) -> None:
        if responses.shown_in != notebook.cell_number:
            raise NotImplementedError  # the formatters' word for "go on as usual"

    formatter = notebook.shell.display_formatter
    assert formatter is not None  # every shell makes one
    bundles, texts = formatter.mimebundle_formatter, formatter.formatters["text/plain"]
    first = formatter.ipython_display_formatter
    # By name: most classes are imported when they are first used.
    names = [
        target.replace(":", ".")
        for target, (_, drawing) in registry().drawings().items()
        if drawing.document or not drawing.many
    ]
    types: list[type | str] = [*names, Records]
    for kind in types:
        bundles.for_type(kind, bundle)
    texts.for_type(Records, text)  # IPython's own way with lists would go before the bundle
    first.for_type(Responses, shown_while_they_came)

    def remove() -> None:
        for kind in types:
            bundles.pop(kind, None)
        texts.type_printers.pop(Records, None)
        first.type_printers.pop(Responses, None)

    return remove
