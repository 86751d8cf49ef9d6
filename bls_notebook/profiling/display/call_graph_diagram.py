"""The call graph of a session: as Mermaid, which JupyterLab draws, and as plain text. Pure."""

from __future__ import annotations

from bls_notebook.display import as_text as text
from bls_notebook.display.bundle import Display
from bls_notebook.display.units import count, ns, size
from bls_notebook.profiling.analysis.call_graph import CallGraph, Edge, Node
from bls_notebook.records.visible_text import visible

_EMPTY = "no calls: nothing was sent to a model while the profile was on"
_RED = "#d64545"
_AMBER = "#b9770e"
_LONGEST = 48  # characters of a name
_DRAWN = 200  # edges; Mermaid refuses more than 500


def call_graph_text(graph: CallGraph, *, width: int = 100) -> str:
    """Describe a call graph as plain text: the callers, and under each whom it called."""
    if not graph.edges:
        return _EMPTY
    rows: list[list[str]] = []
    nodes = {node.name: node for node in graph.nodes}
    for caller in sorted({e.caller for e in graph.edges}):
        node = nodes.get(caller)
        rows.append([caller or graph.sender, ", ".join(_facts(node)) if node is not None else ""])
        for edge in graph.edges:
            if edge.caller == caller:
                split = [f"own {ns(edge.self_time)}"]
                split += [f"callees {ns(edge.waiting)}"] if edge.waiting else []
                split += [f"queued {ns(edge.queued)}"] if edge.queued else []
                mark = "↻" if edge.cycle else "→"
                callee = nodes.get(edge.callee)
                mark_of = "" if callee is None else _mark(callee)
                named = f"{edge.callee} ({mark_of})" if mark_of else edge.callee
                rows.append([f"  {mark} {named}", _how(edge), ", ".join(split), _data(edge)])
    lines = text.table(rows, width=width, indent="", last="wrap", most=52)
    if any(e.cycle for e in graph.edges):
        lines.append("↻ is on a circle of calls")
    return "\n".join(lines)


def call_graph_mermaid(graph: CallGraph) -> str:
    """Return a flowchart of Mermaid; circles are red. Of a very large graph: the calls that took longest."""
    names = {"": "n0"} | {node.name: f"n{i}" for i, node in enumerate(graph.nodes, 1)}
    lines = ["flowchart LR"]
    if not graph.edges:
        return f'{lines[0]}\n  n0["{_escaped(_EMPTY)}"]\n'
    edges = sorted(graph.edges, key=lambda e: -e.duration)[:_DRAWN]
    shown = {e.caller for e in edges} | {e.callee for e in edges}
    if "" in shown:
        lines.append(f'  n0(["{_escaped(graph.sender)}"])')
    for node in graph.nodes:
        if node.name in shown:
            inside = "<br/>".join([f"<b>{_escaped(node.name)}</b>", *map(_escaped, _facts(node))])
            left, right = ("[[", "]]") if node.ensemble else ("[", "]")
            lines.append(f'  {names[node.name]}{left}"{inside}"{right}')
    for edge in edges:
        said = [_how(edge), f"queued {ns(edge.queued)}" if edge.queued else "", _data(edge)]
        words = "<br/>".join(_escaped(word) for word in said if word)
        arrow = "-.->" if edge.calls == edge.asynchronous + edge.stream else "-->"
        lines.append(f'  {names[edge.caller]} {arrow}|"{words}"| {names[edge.callee]}')
    red = [str(i) for i, edge in enumerate(edges) if edge.cycle]
    if red:
        lines.append(f"  linkStyle {','.join(red)} stroke:{_RED},stroke-width:2.5px")
        lines.append(f"  classDef circle stroke:{_RED},stroke-width:2.5px")
        inside = ",".join(names[n.name] for n in graph.nodes if n.cycle and n.name in shown)
        lines.append(f"  class {inside} circle")
    stubs = [names[n.name] for n in graph.nodes if n.stub and n.name in shown]
    if stubs:
        lines.append(f"  classDef stub stroke:{_AMBER},stroke-width:1.5px,stroke-dasharray:5 4")
        lines.append(f"  class {','.join(stubs)} stub")
    return "\n".join(lines) + "\n"


def _mark(node: Node) -> str:
    return "a stub" if node.stub else "remote" if node.remote else ""


def _facts(node: Node) -> list[str]:
    """What there is to say of a model, a line each."""
    calls = count(node.calls, "call")
    if 0 < node.executions < node.calls and not node.errors:
        calls += f" in {node.executions:,} executions"
    out = [*filter(None, [_mark(node)]), calls]
    if node.executions:
        out.append(f"own {ns(node.self_time)}")
    if node.waiting:
        out.append(f"callees {ns(node.waiting)}")
    if node.queued:
        out.append(f"queued {ns(node.queued)}")
    if node.errors:
        out.append(count(node.errors, "error"))
    return out


def _how(edge: Edge) -> str:
    """How one model called another: how often, by what, side by side or one after the other."""
    kinds = [(edge.sync, "exec"), (edge.asynchronous, "async_exec"), (edge.stream, "stream"), (edge.ensemble, "step")]
    if not edge.caller:
        kinds = [(edge.sync, "infer"), (edge.asynchronous, "infer_async"), *kinds[2:]]
    used = [(number, word) for number, word in kinds if number]
    out = " + ".join(f"{number:,} {word}" for number, word in used)
    if edge.calls > 1:
        side_by_side = "all" if edge.parallel == edge.calls else f"{edge.parallel:,}"
        out += f", {side_by_side} in parallel" if edge.parallel else ", in sequence"
    if edge.cached:
        out += f", {edge.cached:,} cached"
    return out


def _data(edge: Edge) -> str:
    out = []
    if edge.bytes_in or edge.bytes_out:
        out.append(f"{size(edge.bytes_in)} in, {size(edge.bytes_out)} out")
    if edge.crossings:
        out.append(count(edge.crossings, "device crossing"))
    return ", ".join(out)


def _escaped(words: str) -> str:
    """Text within quotes of Mermaid: what means something to it or to HTML as an entity by its number."""
    clipped = text.clip(visible(words), _LONGEST * 2)
    return "".join(c if c.isalnum() or c in " .,_-+/:()→" or c in "µ·×…" else f"#{ord(c)};" for c in clipped)


def call_graph_display(graph: CallGraph, *, width: int, live: bool) -> Display:
    """Draw a call graph as text and as Mermaid."""
    return Display(call_graph_text(graph, width=width), mermaid=call_graph_mermaid(graph))
