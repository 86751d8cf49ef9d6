"""Failed requests in a verdict: the first error, a call that fails a batch, errors that a caller does not pass on.

Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from bls_notebook.engine import execute_failed
from bls_notebook.profiling.records.spans import SessionData, Span
from bls_notebook.profiling.records.verdicts import Verdict, calls_of, failed_roots
from bls_notebook.records import spoken

from .span_tree import SpanTree

_NAMED = 4  # the most callees that a sentence names


class FailedRequests(NamedTuple):
    """The failed requests of a run to one ``model``: a sentence, and a remark if one call failed a whole batch."""

    model: str
    sentence: str
    batch: str


def failed_requests(session: SessionData) -> FailedRequests | None:
    """Return the failed requests of a run, which make its times meaningless; None if none failed."""
    unanswered = list(failed_roots(session))
    if not unanswered:
        return None
    model = unanswered[0].model
    roots = [s for s in session.spans if not s.parent and s.model == model]
    error = next((_first_line(s) for s in roots if s.error), "")
    bad = sum(s.model == model for s in unanswered)
    how = f"failed: {error}" if error else f"{'was' if bad == 1 else 'were'} cancelled"
    return FailedRequests(model, f"{bad} of {len(roots)} requests to `{model}` {how}", _spread(session))


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
    error = _first_line(failing[0]).rstrip(".")
    words = f"`{caller}` answered without an error although {callees} failed: {error}."
    advice = (
        f"Unless `{caller}` replaces the failed response on purpose, it ignores the error: check has_error() after "
        f"each call, and pass the error on. {verdict.advice}".strip()
    )
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
            return (
                f"`{caller}` ran {len(members)} requests as one batch, and {which} failed (of `{callee}`): an "
                "exception raised from execute fails every request of the batch. If the error concerns only some of "
                "them, return InferenceResponse(error=...) for these, and answer the others."
            )
    return ""
