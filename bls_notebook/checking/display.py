"""Display of findings, worst first: each is a line that unfolds to the reason and the fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bls_notebook.display import Html, join, parts, tag
from bls_notebook.display import document as doc
from bls_notebook.records import count, size

from .records import SEVERITIES, Finding, Findings, number_of_rules
from .shared_memory import CONTAINER_SHM

_MARKS = {"error": "✗", "warning": "!", "note": "·"}


@doc.document("findings")
def findings_document(result: Findings) -> Iterator[doc.Block]:
    """Show the findings, and the shared memory that the models need."""
    yield doc.Words(_summary(result))
    if findings := list(map(_finding, result.findings)):
        yield doc.Forms(findings, [doc.Box(findings, "findings-list")])
    if result.memory:
        yield doc.Forms([doc.Words(_needs(result), gap=True)], [doc.Fold(_needs(result), [_memory(result)])])


def _summary(result: Findings) -> doc.Piece:
    """Count the models, and the findings by severity."""
    tally = Counter(finding.severity for finding in result.findings)
    counts = [count(tally[severity], severity) for severity in SEVERITIES if tally[severity]]
    release = f" for release {result.release}" if result.release else ""
    checked = f"{count(len(result.models), 'model')} checked{release}"
    if not counts:
        words = f"{checked}: no problem found by {number_of_rules()} rules"
        return doc.Piece(f"✓ {words}", join(tag("span", "✓", cls="findings-good"), words, by=" "))
    shown = (tag("b", words, cls=f"findings-tally-{words.split()[1].rstrip('s')}") for words in counts)
    return doc.Piece(f"{checked}: {', '.join(counts)}", join(f"{checked}:", *shown, by=" "))


def _finding(finding: Finding) -> doc.Block:
    """Show one finding; HTML folds the reason and the fix."""
    severity = finding.severity if finding.severity in _MARKS else "note"
    where = tag("span", finding.where, cls="findings-where")
    sentence = (parts.name(finding.model).html, parts.coded(finding.what).html, where)
    mark = tag("span", finding.severity, cls="findings-mark")
    title = join(mark, tag("span", join(*sentence, by=" "), cls="findings-said"), by=" ")
    pairs = (("why", parts.coded(finding.why)), ("fix", parts.coded(finding.mend)))
    details: list[doc.Block] = [
        doc.Forms([doc.Line([f"{finding.where}  [{finding.code}]".lstrip()])]),
        *(doc.Note(label, said, _cells(label, said.html), indent="") for label, said in pairs if said.text),
        doc.Forms([], [doc.Both(lambda _: [], _cells("code", parts.code(finding.code).html))]),
    ]
    said = doc.Forms([doc.Words(f"{finding.model}: {finding.what}")])
    fold = doc.Fold(doc.Piece("", title), [doc.Box(details, "findings-more")])
    return doc.Box([said, fold], f"findings-{severity}", _MARKS[severity], gap=True)


def _cells(label: str, shown: Html) -> Html:
    return join(tag("span", label, cls="dim"), tag("div", shown))


def _needs(result: Findings) -> str:
    unknown = "" if all(need.known for need in result.memory) else ", not counting tensors of unknown size"
    return (
        f"/dev/shm on a server: {size(result.shm_bytes)} with full batches{unknown}, for "
        f"{count(len(result.memory), 'Python model')} "
        f"(a container has {size(CONTAINER_SHM)} unless it is started with --shm-size)"
    )


def _memory(result: Findings) -> doc.Table:
    columns = doc.columns("model | instances:r | each:r | together:r")
    rows = [
        doc.Row([
            parts.name(need.model), f"{need.instances:,}",
            doc.Piece(size(need.each), Html(("" if need.known else "≥ ") + size(need.each))),
            parts.memory(need.bytes),
        ])
        for need in sorted(result.memory, key=lambda need: -need.bytes)
    ]  # fmt: skip
    return doc.Table("Shared memory that the models need", columns, rows)
