"""Display of findings, worst first: each is a line that unfolds to the reason and the fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.records.units import count, size

from .records import SEVERITIES, Finding, Findings, number_of_rules
from .shared_memory import CONTAINER_SHM

_MARKS = {"error": "✗", "warning": "!", "note": "·"}


def findings_document(result: Findings) -> doc.Document:
    """Show the findings, and the shared memory that the models need."""
    blocks: list[doc.Block] = [doc.Words(_summary(result))]
    if result.findings:
        blocks.append(doc.Box([_line(finding) for finding in result.findings], "findings-list"))
    blocks += _memory(result)
    return doc.Document([doc.Forms(list(_text(result)), blocks)], styles="findings")


def _summary(result: Findings) -> doc.Piece:
    """Count the models, and the findings by severity."""
    tally = Counter(finding.severity for finding in result.findings)
    counts = [count(tally[severity], severity) for severity in SEVERITIES if tally[severity]]
    checked = f"{count(len(result.models), 'model')} checked"
    if not counts:
        words = f"{checked}: no problem found by {number_of_rules()} rules"
        return doc.Piece(f"✓ {words}", join(tag("span", "✓", cls="findings-good"), words, by=" "))
    shown = (tag("b", words, cls=f"findings-tally-{words.split()[1].rstrip('s')}") for words in counts)
    return doc.Piece(f"{checked}: {', '.join(counts)}", join(f"{checked}:", *shown, by=" "))


def _line(finding: Finding) -> doc.Block:
    """Show one finding, folded."""
    where = tag("span", finding.where, cls="findings-where")
    sentence = (parts.name(finding.model).html, parts.coded(finding.what).html, where)
    mark = tag("span", finding.severity, cls="findings-mark")
    title = join(mark, tag("span", join(*sentence, by=" "), cls="findings-said"), by=" ")
    details = [cell for label, text in _details(finding) for cell in (tag("span", label, cls="dim"), tag("div", text))]
    fold = doc.Fold(doc.Piece("", title), [doc.Both(lambda _: [], tag("div", *details, cls="findings-more"))])
    return doc.Box([fold], f"findings-{finding.severity if finding.severity in _MARKS else 'note'}")


def _details(finding: Finding) -> Iterator[tuple[str, Html]]:
    if finding.why:
        yield "why", parts.coded(finding.why).html
    if finding.mend:
        yield "fix", parts.coded(finding.mend).html
    yield "code", tag("code", prose(finding.code))


def _text(result: Findings) -> Iterator[doc.Block]:
    yield doc.Words(_summary(result))
    for finding in result.findings:
        mark = _MARKS.get(finding.severity, "·")
        yield doc.Words(f"{finding.model}: {finding.what}", indent=f"{mark} ", hang="  ", gap=True)
        where = f"{finding.where}  [{finding.code}]" if finding.where else f"[{finding.code}]"
        yield doc.Line([where], indent="    ")
        if finding.why:
            yield doc.Words(finding.why, indent="    why: ", hang="         ")
        if finding.mend:
            yield doc.Words(finding.mend, indent="    fix: ", hang="         ")
    if result.memory:
        yield doc.Words(_needs(result), gap=True)


def _needs(result: Findings) -> str:
    unknown = "" if all(need.known for need in result.memory) else ", not counting tensors of unknown size"
    return (
        f"/dev/shm on a server: {size(result.shm_bytes)} with full batches{unknown}, for "
        f"{count(len(result.memory), 'Python model')} "
        f"(a container has {size(CONTAINER_SHM)} unless it is started with --shm-size)"
    )


def _memory(result: Findings) -> Iterator[doc.Block]:
    if not result.memory:
        return
    columns = doc.columns("model | instances:r | each:r | together:r")
    rows = [
        doc.Row([
            parts.name(need.model), f"{need.instances:,}",
            doc.Piece(size(need.each), Html(("" if need.known else "≥ ") + size(need.each))),
            parts.memory(need.bytes),
        ])
        for need in sorted(result.memory, key=lambda need: -need.bytes)
    ]  # fmt: skip
    yield doc.Fold(_needs(result), [doc.Table("Shared memory that the models need", columns, rows)])
