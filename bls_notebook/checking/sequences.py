"""Sequences: state that a server spreads over instances, calls of sequence models that lack something."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from .code import Code
from .material import Material
from .records import Finding
from .values import last_name


def sequence_findings(model: Material, models: Mapping[str, Material]) -> Iterator[Finding]:
    """Yield what keeps sequences from holding together."""
    code = model.newest()
    if code is None or code.mistake:
        return
    batched = model.config.HasField("sequence_batching")
    if model.instances > 1 and not batched and (line := _keeps_state(code)):
        yield model.in_code(
            "warning", "sequence-no-batcher", code, line,
            f"it keeps state by correlation ID, in {model.instances} instances and without sequence_batching",
            "Each instance is a process of its own, and requests of one sequence go to whichever is idle.",
            "Add `sequence_batching { }`, which sends a sequence to one instance, or set `instance_group "
            "[ { count: 1 } ]`.",
        )  # fmt: skip
    yield from _calls(model, code, models)


def _keeps_state(code: Code) -> int:
    """The line of `execute` that asks for the correlation ID, where `execute` also puts something by it."""
    if code.execute is None:
        return 0
    line, keys, keeps = 0, set[str](), False
    for node in ast.walk(code.execute):
        if isinstance(node, ast.Call) and last_name(node.func) == "correlation_id":
            line = line or node.lineno
        if isinstance(node, ast.Assign) and any(
            isinstance(n, ast.Call) and last_name(n.func) == "correlation_id" for n in ast.walk(node.value)
        ):
            keys |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(code.execute):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            of_self = any(isinstance(n, ast.Name) and n.id == "self" for n in ast.walk(node.value))
            by_key = any(
                (isinstance(n, ast.Name) and n.id in keys)
                or (isinstance(n, ast.Call) and last_name(n.func) == "correlation_id")
                for n in ast.walk(node.slice)
            )
            keeps |= of_self and by_key
    return line if keeps else 0


def _calls(model: Material, code: Code, models: Mapping[str, Material]) -> Iterator[Finding]:
    flags: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    for call in code.calls:
        callee = models.get(call.model)
        if callee is None or not callee.config.HasField("sequence_batching") or not call.plain:
            continue
        if callee.config.sequence_batching.iterative_sequence:  # a server makes an ID of its own
            continue
        if "correlation_id" not in call.given:
            yield model.in_code(
                "error", "sequence-no-id", code, call.line,
                f"{call.model!r} is a sequence model, and its request has no `correlation_id`",
                "The response is an error: a sequence model does not know whose request it is.",
                "Give the request `correlation_id=` (not 0), and `flags=` at its beginning and end.",
            )  # fmt: skip
            continue
        flags.setdefault(call.model, []).extend(call.flags if call.flags is not None else ())
        lines.setdefault(call.model, call.line)
    for name, found in flags.items():
        if "?" in found or code.mentions("set_flags"):
            continue
        if not any(flag.endswith("SEQUENCE_START") for flag in found):
            yield model.in_code(
                "error", "sequence-no-start", code, lines[name],
                f"no request to the sequence model {name!r} has the flag of a sequence's start",
                "A sequence that was not begun is refused.",
                "Send the first one with `flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START`.",
            )  # fmt: skip
        elif not any(flag.endswith("SEQUENCE_END") for flag in found):
            yield model.in_code(
                "warning", "sequence-no-end", code, lines[name],
                f"no request to the sequence model {name!r} has the flag of a sequence's end",
                "Its slot stays taken until max_sequence_idle_microseconds have passed; others wait "
                "meanwhile.",
                "Send the last one with `flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END`.",
            )  # fmt: skip
