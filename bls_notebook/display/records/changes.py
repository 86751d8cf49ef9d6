"""What a new definition of a model changed: how many lines of which files, and these folded away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bls_notebook.display import document as doc
from bls_notebook.display import text
from bls_notebook.display.html import Html, tag
from bls_notebook.observe.records.changes import Change
from bls_notebook.observe.visible import visible

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
    return doc.Both(lambda width: list(_text(change, width)), _html(change))


def _text(change: Change, width: int) -> Iterator[str]:
    for sign, line in change.lines[:_IN_TEXT]:
        yield from text.wrap(f"{sign} {visible(line)}", width, "    ", "      ")
    if len(change.lines) > _IN_TEXT:
        yield f"    … {len(change.lines) - _IN_TEXT} more lines"


def _html(change: Change) -> Html:
    # The newline is for readers without the stylesheet; a block swallows it.
    lines = (
        tag("span", f"{sign} {visible(line)}", Html("\n"), cls=_CLASSES.get(sign, ""))
        for sign, line in change.lines
    )
    return tag("div", tag("span", change.file, cls="dim"), tag("pre", *lines, cls="changes-lines"))
