"""`Assertions`: the assertions of `RepositoryUnderTest` on requests, calls, memory and responses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bls_notebook.engine import BLSError
from bls_notebook.lifetimes.memory_recording import await_release, track_memory
from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.profiling.session import Session
from bls_notebook.records import ErrorRecord, bytes_in, count, first_line
from bls_notebook.repository import StubCall
from bls_notebook.repository.source import find_model
from bls_notebook.shipping.records import Certificate

from . import claim_checks
from .claim_checks import Judgement, judge
from .failure_text import calls_text, differences_text, error_text, unlike
from .recorded_calls import RecordedCalls
from .records import BAD, VERDICTS, Drilled
from .triton_servers import Servers, skipping

__unittest = True  # tracebacks of unittest end in the test
_PATIENCE = 1.0  # seconds in which threads of models may release memory


class Assertions:
    """Assertions on the requests that a repository got since the test began, or since `forget`."""

    here: Path
    update_snapshots: bool
    _errors: list[ErrorRecord]
    _warned: list[tuple[str, str]]
    _loads: dict[str, int]  # ns, of callees that a request of a model loaded
    _servers: Servers | None
    _served: set[str]  # models that served requests, or had a stub
    _profile: RecordedCalls

    if TYPE_CHECKING:

        @property
        def paths(self) -> tuple[Path, ...]:
            """Folders with models."""

        def _need(self, name: object) -> None: ...

    @property
    def session(self) -> Session:
        """Profile of the requests so far: spans, models, waits."""
        return replace(self._profile.record, sender="the test")

    def forget(self) -> None:
        """Discard the recorded requests: later assertions ignore them."""
        self._end_profile()
        self._errors.clear()
        self._warned.clear()
        self._loads.clear()
        self._profile = RecordedCalls().__enter__()

    def _calls_text(self) -> str:
        return calls_text(self.session, self._loads)

    def _end_profile(self) -> None:
        if self._profile.running:
            self._profile.__exit__(None, None, None)

    def calls(self, model: str = "") -> tuple[StubCall, ...]:
        """Return the requests that a model received (default: all models), in the order of their execution."""
        self._skip_on_server("which requests a model got")
        self._know(model)
        wanted = {model} if model else self._served  # the profile has requests of other repositories too
        return tuple(call for call in self._profile.calls if call.model in wanted)

    def assert_called(
        self,
        model: str,
        times: int | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        caller: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        rtol: float = 0.0,
        atol: float = 0.0,
    ) -> tuple[StubCall, ...]:
        """Assert that a model received requests that match all arguments, and return them.

        Parameters
        ----------
        model : str
        times : int, optional
            Expected number of requests; by default at least one.
        inputs : mapping of str to array, optional
            Expected inputs; a request may have others too.
        caller : str, optional
            The model that sent the requests; empty for the test.
        parameters : mapping, optional
            Expected parameters; a request may have others too.
        rtol, atol : float
            Tolerances, as for `numpy.isclose`.
        """
        __tracebackhide__ = True
        matching, near = [], []
        for call in self.calls(model):
            if caller is not None and call.caller != caller:
                continue
            if any(call.parameters.get(key) != value for key, value in (parameters or {}).items()):
                continue
            differ = unlike(call.inputs, inputs or {}, rtol, atol)
            if differ:
                near.append((call, differ))
            else:
                matching.append(call)
        if times == len(matching) or (times is None and matching):
            return tuple(matching)
        wanted = "a request" if times is None else count(times, "request")
        if caller is not None:
            wanted += f" from {caller or 'the test'}"
        if parameters:
            wanted += f" with parameters {dict(parameters)}"
        if inputs:
            wanted += f" with the expected input{'s' if len(inputs) > 1 else ''} {' and '.join(inputs)}"
        details = [differences_text(differ, ("expected", "received")) for _, differ in near[:3]]
        if near and (left_out := self._profile.left_out):
            details.append(f"tensors of {count(left_out, 'request')} were not kept: over the memory limit")
        raise _failed(
            f"{model}: {count(len(matching), 'matching request')}, expected {wanted}", *details,
            self._calls_text(),
        )  # fmt: skip

    def assert_not_called(self, model: str) -> None:
        """Assert that a model received no request."""
        __tracebackhide__ = True
        calls = self.calls(model)
        if calls:
            by = ", ".join(dict.fromkeys(call.caller or "the test" for call in calls))
            raise _failed(f"{model}: {count(len(calls), 'request')}, from {by}; expected none", self._calls_text())

    def assert_called_in_order(self, *models: str) -> None:
        """Assert the order of the requests to these models, one name per request; other models are ignored."""
        __tracebackhide__ = True
        self._know(*models)
        called = [call.model for call in self.calls() if call.model in models]
        if called != list(models):
            got = " ".join(called) or "none of them"
            raise _failed(f"called in the order: {got}; expected {' '.join(models)}", self._calls_text())

    def assert_overlapped(self, least: int = 2, model: str = "") -> None:
        """Assert that at least `least` requests (to one model, or to any) were computed at the same moment."""
        __tracebackhide__ = True
        self._know(model)
        self._judge(claim_checks.overlapped(self.session, least, model))

    def assert_not_overlapped(self, *models: str) -> None:
        """Assert that each of these models computed its requests one after the other."""
        __tracebackhide__ = True
        self._know(*models)
        for model in models:
            judgement = claim_checks.overlapped(self.session, 2, model)
            if judgement:
                raise _failed(f"{model}: {judgement.seen}; expected one after the other", self._calls_text())

    def assert_batched(self, model: str, least: int = 2) -> None:
        """Assert that at least one `execute` of a model received `least` requests or more."""
        __tracebackhide__ = True
        largest = max((call.batch for call in self.calls(model)), default=0)
        if largest < least:
            hint = "requests form a batch if the model has dynamic_batching and they wait in its queue together"
            raise _failed(f"{model}: at most {count(largest, 'request')} in a batch, expected {least}", hint)

    def assert_that(self, claim: str) -> None:
        """Assert a claim in the language of `%%blscheck` about requests: ``queued < 5 ms of resize``, ``moved == 0``.

        Raises a BLSError that names the assertion to use for a claim about something else.
        """
        __tracebackhide__ = True
        self._skip_on_server("what happened to requests")
        if instead := claim_checks.form_of(claim).assertion:
            raise BLSError(f"assert_that: {claim!r} is not about the requests so far; use {instead}")
        self._judge(judge(self.session, claim))

    def assert_no_errors(self) -> None:
        """Assert that no request failed, including the requests that models sent."""
        __tracebackhide__ = True
        failed = [span for span in self.session.spans if span.state == "error"]
        if failed:
            lines = [f"{span.model}: {first_line(span.error)}" for span in failed[:5]]
            raise _failed(
                f"{count(len(failed), 'request')} failed", "\n".join(lines), *map(error_text, self._errors[:3])
            )

    def assert_no_warnings(self) -> None:
        """Assert that no response had a warning: a mistake that Triton accepts without an error."""
        __tracebackhide__ = True
        self._skip_on_server("warnings")
        if self._warned:
            lines = dict.fromkeys(f"{model}: {warning}" for model, warning in self._warned)
            raise _failed(f"{count(len(lines), 'warning')}, expected none", "\n".join(lines))

    def assert_nothing_left(self, device: str = "") -> AbstractContextManager[None]:
        """Assert that memory allocated by requests inside a ``with`` is free at its end."""
        self._skip_on_server("memory")
        return _Tracked(lambda lifetimes: self._judge(claim_checks.left_nothing(lifetimes, device)), True)

    def assert_peak(self, most: str | int, device: str = "") -> AbstractContextManager[None]:
        """Assert the peak memory of a ``with``: at most `most` bytes, or text such as ``2 MB``."""
        self._skip_on_server("memory")
        limit = bytes_in(most)
        if limit is None:
            raise BLSError(f"assert_peak: got {most!r}, expected bytes, or a size such as '2 MB'")
        return _Tracked(lambda lifetimes: self._judge(claim_checks.peak(lifetimes, "<=", limit, device)))

    def assert_survives(
        self, model: str, inputs: Mapping[str, Any], *, refuse: Collection[str] = BAD, **options: Any
    ) -> Drilled:
        """Assert that no fault of its callees makes a model misbehave.

        Afterwards the test's earlier requests and those of the drill are forgotten: see `forget`.

        Parameters
        ----------
        model : str
        inputs : mapping of str to array_like
            Inputs of a request that succeeds without faults.
        refuse : collection of str
            The verdicts that fail the test, such as ``("crash", "hang", "leak", "spoilt")``; default: all bad verdicts.
        **options
            Options of `bls.drill`: ``faults``, ``pairs``, ``timeout`` ...
        """
        __tracebackhide__ = True
        from .drills.driller import drill

        self._skip_on_server("how a model handles failing callees")
        self._need(model)
        unknown = [verdict for verdict in refuse if verdict not in VERDICTS]
        if unknown:
            raise ValueError(f"refuse: got {unknown[0]!r}, expected verdicts: {', '.join(VERDICTS)}")
        repository: Any = self
        try:
            drilled = drill(model, inputs, repo=repository, **options)
        finally:
            self.forget()
        failures = []
        for case in drilled.cases:
            if case.verdict in refuse:
                at = case.at or case.sent
                where = f"\n    {at.file}:{at.line}: {at.code}" if at is not None else ""
                failures.append(f"  {case.name}: {case.verdict}: {case.said}{where}")
        if failures:
            title = f"{model} does not survive {len(failures)} of {len(drilled.cases)} faults:"
            raise AssertionError("\n".join([title, *failures]))
        return drilled

    def assert_proven_equal(self, model: str, *requests: Any, **options: Any) -> Certificate:
        """Assert that a model gives the same responses as on a real tritonserver; calls `bls.prove`.

        Skips the test if no server can be started. Afterwards earlier requests are forgotten: see `forget`.
        """
        __tracebackhide__ = True
        from bls_notebook.display import render
        from bls_notebook.shipping.proof.prover import prove
        from bls_notebook.shipping.servers.server_programs import TritonServerError

        self._skip_on_server("whether a model gives the same responses as on a server")
        self._need(model)
        repository: Any = self
        try:
            certificate = prove(model, *requests, repo=repository, **options)
        except TritonServerError as error:
            skipping(first_line(str(error)))
        finally:
            self.forget()
        assert certificate.equal, render(certificate).text
        return certificate

    def assert_answer(
        self, response: Any, expected: Mapping[str, Any], *, rtol: float = 0.0, atol: float = 0.0
    ) -> None:
        """Assert the outputs of a response; it may have others too.

        Parameters
        ----------
        response : Response
        expected : mapping of str to array
            Expected outputs by name.
        rtol, atol : float
            Tolerances, as for `numpy.isclose`.
        """
        __tracebackhide__ = True
        if response.error is not None:
            error = response.record.error
            raise _failed(f"{response.model} answered with an error", "" if error is None else error_text(error))
        differ = unlike(response.as_numpy(), expected, rtol, atol)
        if differ:
            raise _failed(
                f"{response.model}: {', '.join(tensor.name for tensor in differ)} differ",
                differences_text(differ, ("expected", "response")),
            )

    def assert_same_answers(self, file: str | Path, *responses: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
        """Assert that responses are the same as in a snapshot.

        Parameters
        ----------
        file : str or Path
            The snapshot, ``.json``, relative to the test's folder. It is written if it is missing, or if snapshots are
            updated: ``pytest --bls-update-snapshots``, or the environment variable ``BLS_UPDATE_SNAPSHOTS=1``.
        *responses : Response
            The responses, in the order of the snapshot.
        rtol, atol : float
            Tolerances, as for `numpy.isclose`.
        """
        from .snapshots import check_snapshot

        __tracebackhide__ = True
        differences = check_snapshot(self.here / file, responses, self.update_snapshots, rtol, atol)
        if differences:
            raise _failed(*differences)

    def failure_text(self, message: str = "") -> str:
        """Return the errors and calls of models that the message of a failed test does not contain yet."""
        errors = [text for error in self._errors[-3:] if (text := error_text(error)) not in message]
        calls = self._calls_text() if self._servers is None else ""  # a server does not report calls
        return "\n\n".join([*errors, *([] if calls in message else [calls])])

    def _know(self, *models: str) -> None:
        """Raise a ModelNotFoundError for an unknown model: an assertion about it would prove nothing."""
        __tracebackhide__ = True
        for model in models:
            if model and model not in self._served:
                find_model(self.paths, model)

    def _skip_on_server(self, fact: str) -> None:
        if self._servers is not None:
            skipping(f"{fact}: a server does not report this")

    def _judge(self, judgement: Judgement) -> None:
        __tracebackhide__ = True
        self._skip_on_server("what happened to requests")
        if not judgement:
            raise _failed(f"{judgement.claim}: {judgement.seen}", judgement.hint, self._calls_text())


class _Tracked(AbstractContextManager[None]):
    """Track memory in a ``with`` and judge it at the end; if `empty`, first wait until threads released theirs."""

    def __init__(self, judge: Callable[[Lifetimes], None], empty: bool = False) -> None:
        self._judge, self._empty = judge, empty
        self._track = track_memory()

    def __enter__(self) -> None:
        self._track.__enter__()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        __tracebackhide__ = True
        if error is None and self._empty:
            await_release(self._track, _PATIENCE)
        self._track.__exit__(kind, error, traceback)
        if error is None:
            self._judge(self._track.record)


def _failed(*parts: str) -> AssertionError:
    return AssertionError("\n\n".join(filter(None, parts)))
