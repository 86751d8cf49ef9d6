"""What a new definition of a model changed: how many lines of which files, and these folded away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bls_notebook.display import document as doc
from bls_notebook.display import text
from bls_notebook.display.html import Html, tag
from bls_notebook.records.changes import Change
from bls_notebook.records.visible import visible

_IN_TEXT = 12  # lines of a file, where nothing can be folded
_CLASSES = {"+": "changes-came", "-": "changes-went", "…": "dim"}


def changes_blocks(changes: Sequence[Change]) -> Iterator[doc.Block]:
    """Show changes under a line that sums them up; nothing where there are none."""
    if changes:
        title = "changed since the last definition: " + ", ".join(map(_count, changes))
        yield doc.Forms(
            [doc.Words(title, indent="  "), *(_block(change) for change in changes)],
            [doc.Fold(title, [_block(change) for change in changes])],
        )


def _count(change: Change) -> str:
    return f"{change.file} +{change.added} -{change.removed}".replace("-", "−")


def _block(change: Change) -> doc.Block:
    return change_block(change, _IN_TEXT)


def change_block(change: Change, most: int) -> doc.Block:
    """Show a change; as text, so many lines of it."""
    return doc.Both(lambda width: list(_text(change, width, most)), _html(change))


def _text(change: Change, width: int, most: int) -> Iterator[str]:
    for number, (sign, line) in zip(_numbers(change), change.lines[:most], strict=False):
        yield from text.wrap(f"{number}{sign} {visible(line)}", width, "    ", "      " + " " * len(number))
    if len(change.lines) > most:
        yield f"    … {len(change.lines) - most} more lines"


def _numbers(change: Change) -> list[str]:
    """What stands before each line: its number, where numbers are told."""
    if not change.numbers or len(change.numbers) != len(change.lines):
        return [""] * len(change.lines)
    width = len(str(max(change.numbers)))
    return [f"{number or '':>{width}} " for number in change.numbers]


def _html(change: Change) -> Html:
    # The newline is for readers without the stylesheet; a block swallows it.
    lines = (
        tag(
            "span",
            *([tag("span", number, cls="dim")] if number else []),
            f"{sign} {visible(line)}",
            Html("\n"),
            cls=_CLASSES.get(sign, ""),
        )
        for number, (sign, line) in zip(_numbers(change), change.lines, strict=True)
    )
    return tag("div", tag("span", change.file, cls="dim"), tag("pre", *lines, cls="changes-lines"))
