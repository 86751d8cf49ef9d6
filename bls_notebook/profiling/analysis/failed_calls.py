"""Verdicts on failed requests: the first error, a call that fails a whole batch, errors that a caller does not pass on.

Pure.
"""

from __future__ import annotations

from dataclasses import replace

from bls_notebook.engine import execute_failed
from bls_notebook.profiling.records.spans import SessionData, Span
from bls_notebook.profiling.records.verdicts import TEXTS, Verdict, calls_of
from bls_notebook.records import spoken

from .span_tree import SpanTree

_WORDS = TEXTS["failed"]
_NAMED = 4  # the most callees that a sentence names


def failed(session: SessionData) -> Verdict:
    """Return the verdict on a run with failed requests: the first error; their times mean nothing."""
    unanswered = [s for s in session.spans if not s.parent and s.state in ("error", "cancelled")]
    model = unanswered[0].model
    roots = [s for s in session.spans if not s.parent and s.model == model]
    error = next((_first_line(s) for s in roots if s.error), "")
    bad = sum(s.model == model for s in unanswered)
    how = f"failed: {error}" if error else f"{'was' if bad == 1 else 'were'} cancelled"
    words = f"{bad} of {len(roots)} requests to `{model}` {how}"
    return with_lost_errors(Verdict("failed", words, _spread(session), model=model), session)


def with_lost_errors(verdict: Verdict, session: SessionData) -> Verdict:
    """Begin a verdict with the calls that failed although their callers answered without an error, if there are any."""
    tree = SpanTree.of(session)
    lost: dict[str, list[Span]] = {}
    for execution, calls in tree.children.items():
        members = tree.members.get(execution, ())  # none: the notebook, or a caller that was not recorded
        if members and all(span.state == "ok" for span in members):
            lost.setdefault(members[0].model, []).extend(call for call in calls if call.state == "error")
    caller, failing = max(lost.items(), key=lambda item: len(item[1]), default=("", []))
    if not failing:
        return verdict
    callees = " and ".join(f"a call of {each}" if each[0] == "`" else each for each in calls_of(failing)[:_NAMED])
    words = _WORDS["lost"].format(caller=caller, callees=callees, error=_first_line(failing[0]).rstrip("."))
    advice = f"{_WORDS['lost advice'].format(caller=caller)} {verdict.advice}".strip()
    return replace(verdict, sentence=f"{words} {verdict.sentence}".strip(), advice=advice)


def _first_line(span: Span) -> str:
    """Return the error of a span without the traceback that Triton puts below a message."""
    return spoken(span.error).strip().partition("\n")[0]


def _spread(session: SessionData) -> str:
    """Name a batch whose requests all failed by an exception, though fewer calls failed than it has; or empty."""
    tree = SpanTree.of(session)
    for execution, members in tree.members.items():
        calls = tree.children.get(execution, ()) if execution else ()
        failing = [call for call in calls if call.state == "error"]
        # An error that the model passed on has the name of the callee's instance.
        raised = {span.error.startswith(execute_failed(span.instance, "")) and span.error for span in members}
        most = max(len(calls), len(members))  # the exception may have kept the other calls from being sent
        if len(members) > 1 and len(raised) == 1 and all(raised) and 0 < len(failing) < most:
            which = f"{len(failing)} of its {len(calls)} calls" if len(calls) > 1 else "its call"
            caller, callee = members[0].model, failing[0].model
            return _WORDS["spread"].format(caller=caller, batch=len(members), which=which, callee=callee)
    return ""
