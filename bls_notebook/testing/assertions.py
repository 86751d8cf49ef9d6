"""`Assertions`: what a test asserts on the requests of a repository; a part of `RepositoryUnderTest`."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.lifetimes.memory_recording import track_memory
from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.profiling.records.session import Session
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.units import bytes_in, count
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.source.layout import find_model
from bls_notebook.repository.substitution.stub import StubCall

from . import claim_checks
from .claim_checks import Judgement, judge
from .failure_text import calls_text, differences_text, error_text, unlike
from .triton_servers import Servers, skipping

if TYPE_CHECKING:
    from bls_notebook.shipping.records import Certificate

    from .call_log import Calls
    from .records import Drilled

__unittest = True  # tracebacks of unittest end in the test


class Assertions:
    """What happened to the requests of a repository since the test began, or since `forget`."""

    here: Path
    update_snapshots: bool
    _calls: Calls
    _errors: list[ErrorRecord]
    _warned: list[tuple[str, str]]
    _servers: Servers | None

    if TYPE_CHECKING:

        @property
        def paths(self) -> tuple[Path, ...]:
            """The folders that models are looked for in."""

        @property
        def session(self) -> Session:
            """What happened, as a profile has it."""

        def forget(self) -> None:
            """Begin anew."""

        def _need(self, name: object) -> None: ...

    def calls(self, model: str = "") -> tuple[StubCall, ...]:
        """Return the requests that a model was given, or all, in the order in which they were begun."""
        self._here_alone("which requests a model got")
        self._know(model)
        return tuple(call for call in self._calls.found if model in ("", call.model))

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
        """Assert that a model got requests, and return them.

        Parameters
        ----------
        model : str
        times : int, optional
            How many; by default at least one.
        inputs : mapping of str to array, optional
            Inputs that they had, among others.
        caller : str, optional
            The model that sent them; empty for the test.
        parameters : mapping, optional
            Parameters that they had, among others.
        rtol, atol : float
            Tolerances, as for `numpy.isclose`.
        """
        __tracebackhide__ = True
        every = self.calls(model)
        found, near = [], []
        for call in every:
            if caller is not None and call.caller != caller:
                continue
            if any(call.parameters.get(key) != value for key, value in (parameters or {}).items()):
                continue
            differ = unlike(call.inputs, inputs or {}, rtol, atol)
            if differ:
                near.append((call, differ))
            else:
                found.append(call)
        if times == len(found) or (times is None and found):
            return tuple(found)
        wanted = "a request" if times is None else count(times, "request")
        if caller is not None:
            wanted += f" from {caller or 'the test'}"
        if parameters:
            wanted += f" with parameters {dict(parameters)}"
        if inputs:
            wanted += f" with input{'s' * (len(inputs) > 1)} {' and '.join(inputs)} as given"
        more = [differences_text(differ, ("asked for", "given")) for _, differ in near[:3]]
        if near and self._calls.left_out:
            more.append(f"the tensors of {count(self._calls.left_out, 'request')} did not fit, and were not kept")
        raise _failed(
            f"{model}: {count(len(found), 'such request')}, expected {wanted}", *more, calls_text(self.session)
        )

    def assert_not_called(self, model: str) -> None:
        """Assert that a model was given no request."""
        __tracebackhide__ = True
        found = self.calls(model)
        if found:
            by = ", ".join(dict.fromkeys(call.caller or "the test" for call in found))
            raise _failed(
                f"{model}: {count(len(found), 'request')}, from {by}; expected none", calls_text(self.session)
            )

    def assert_called_in_order(self, *models: str) -> None:
        """Assert in which order models were given requests: these, and as often; others do not count."""
        __tracebackhide__ = True
        self._know(*models)
        found = [call.model for call in self.calls() if call.model in models]
        if found != list(models):
            got = " ".join(found) or "none of them"
            raise _failed(f"called in the order: {got}; expected {' '.join(models)}", calls_text(self.session))

    def assert_overlapped(self, least: int = 2, model: str = "") -> None:
        """Assert that so many requests, of a model or of any, were worked on at the same moment."""
        __tracebackhide__ = True
        self._know(model)
        self._judge(claim_checks.overlapped(self.session, least, model))

    def assert_not_overlapped(self, *models: str) -> None:
        """Assert that no two requests of any of the models were worked on at the same moment."""
        __tracebackhide__ = True
        self._know(*models)
        for model in models:
            seen = claim_checks.overlapped(self.session, 2, model)
            if seen:
                raise _failed(f"{model}: {seen.seen}; expected one after the other", calls_text(self.session))

    def assert_batched(self, model: str, least: int = 2) -> None:
        """Assert that one `execute` of a model was given so many requests or more."""
        __tracebackhide__ = True
        sizes = [call.batch for call in self.calls(model)]
        if max(sizes, default=0) < least:
            hint = "they may batch where dynamic_batching is on, and they wait together"
            raise _failed(
                f"{model}: at most {count(max(sizes, default=0), 'request')} in a batch, expected {least}", hint
            )

    def assert_that(self, claim: str) -> None:
        """Assert a claim as `%%blscheck` takes it: ``queued < 5 ms of resize``, ``moved == 0``."""
        __tracebackhide__ = True
        self._here_alone("what happened to requests")
        self._judge(judge(self.session, claim))

    def assert_no_errors(self) -> None:
        """Assert that no request failed, those that models sent to each other included."""
        __tracebackhide__ = True
        failed = [span for span in self.session.spans if span.state == "error"]
        if failed:
            told = [f"{span.model}: {first_line(span.error)}" for span in failed[:5]]
            raise _failed(
                f"{count(len(failed), 'request')} failed", "\n".join(told), *map(error_text, self._errors[:3])
            )

    def assert_no_warnings(self) -> None:
        """Assert that the answers had no warnings: nothing that Triton passes in silence."""
        __tracebackhide__ = True
        self._here_alone("warnings")
        if self._warned:
            told = dict.fromkeys(f"{model}: {words}" for model, words in self._warned)
            raise _failed(f"{count(len(told), 'warning')}, expected none", "\n".join(told))

    def assert_nothing_left(self, device: str = "") -> AbstractContextManager[None]:
        """Assert that nothing is held at the end of a ``with`` that its requests made."""
        self._here_alone("memory")
        return _Tracked(lambda lifetimes: self._judge(claim_checks.left_nothing(lifetimes, device)), True)

    def assert_peak(self, most: str | int, device: str = "") -> AbstractContextManager[None]:
        """Assert that no more was alive at a moment of a ``with``: bytes, or text such as ``2 MB``."""
        self._here_alone("memory")
        limit = bytes_in(most)
        if limit is None:
            raise BLSError(f"assert_peak: got {most!r}, expected bytes, or a size such as '2 MB'")
        return _Tracked(lambda lifetimes: self._judge(claim_checks.peak(lifetimes, "<=", limit, device)))

    def assert_survives(self, model: str, inputs: Mapping[str, Any], **options: Any) -> Drilled:
        """Assert that a model does nothing bad while what it calls misbehaves; as `assert_survives`.

        What happened in the test before, and in the drill, is forgotten then: see `forget`.
        """
        __tracebackhide__ = True
        from .drills.driller import assert_survives  # first needed here

        self._here_alone("what a model does while others misbehave")
        self._need(model)
        try:
            return assert_survives(model, inputs, repo=self, **options)
        finally:
            self.forget()

    def assert_proven_equal(self, model: str, *requests: Any, **options: Any) -> Certificate:
        """Assert that a model answers as on a real tritonserver; as `bls.prove`, which it calls.

        Skips the test where no server can be had. The requests of it are forgotten then: see `forget`.
        """
        __tracebackhide__ = True
        from bls_notebook.display import render
        from bls_notebook.shipping.proof.prover import prove
        from bls_notebook.shipping.servers.environment import TritonServerError

        self._here_alone("whether a model answers as on a server")
        self._need(model)
        here: Any = self  # a repository, too
        try:
            found = prove(model, *requests, repo=here, **options)
        except TritonServerError as error:
            skipping(first_line(str(error)))
        finally:
            self.forget()
        assert found.equal, render(found).text
        return found

    def assert_answer(
        self, response: Any, expected: Mapping[str, Any], *, rtol: float = 0.0, atol: float = 0.0
    ) -> None:
        """Assert that a response has these outputs, among others.

        Parameters
        ----------
        response : Response
        expected : mapping of str to array
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
                f"{response.model}: {', '.join(each.name for each in differ)} differ",
                differences_text(differ, ("expected", "answered")),
            )

    def assert_same_answers(self, file: str | Path, *responses: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
        """Assert that responses are the same as when the snapshot was taken.

        Parameters
        ----------
        file : str or Path
            The snapshot, ``.json``, relative to the test's folder. It is written if it is missing, or if snapshots are
            updated: ``pytest --bls-update-snapshots``, or the environment variable ``BLS_UPDATE_SNAPSHOTS=1``.
        *responses : Response
            In the same order.
        rtol, atol : float
            Tolerances, as for `numpy.isclose`.
        """
        from .snapshots import check_snapshot

        __tracebackhide__ = True
        told = check_snapshot(self.here / file, responses, self.update_snapshots, rtol, atol)
        if told:
            raise _failed(*told)

    def failure_text(self, told: str = "") -> str:
        """Return the errors and calls of models, as far as `told`, the message of a failed test, lacks them."""
        errors = [text for error in self._errors[-3:] if (text := error_text(error)) not in told]
        calls = calls_text(self.session) if self._servers is None else ""  # a server does not tell
        return "\n\n".join([*errors, *([] if calls in told else [calls])])

    def _know(self, *models: str) -> None:
        """Raise a ModelNotFoundError for an unknown model: an assertion about it proves nothing."""
        __tracebackhide__ = True
        for model in models:
            if model and model not in self._calls.known:
                find_model(self.paths, model)

    def _here_alone(self, what: str) -> None:
        if self._servers is not None:
            skipping(f"{what}: a server does not tell")

    def _judge(self, judgement: Judgement) -> None:
        __tracebackhide__ = True
        self._here_alone("what happened to requests")
        if not judgement:
            raise _failed(f"{judgement.claim}: {judgement.seen}", judgement.hint, calls_text(self.session))


class _Tracked(AbstractContextManager[None]):
    """A ``with`` whose memory is judged at its end; with `empty`, once the threads of models had time to release it."""

    def __init__(self, judge: Callable[[Lifetimes], None], empty: bool = False) -> None:
        self._judge, self._empty = judge, empty
        self._track = track_memory()

    def __enter__(self) -> None:
        self._track.__enter__()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        __tracebackhide__ = True
        if error is None and self._empty:
            self._wait_for_threads()
        self._track.__exit__(kind, error, traceback)
        if error is None:
            self._judge(self._track.record)

    def _wait_for_threads(self) -> None:
        """Wait until nothing is left, or for a second: the thread that answered a request may still run."""
        pause = threading.Event()
        for milliseconds in (0, 5, 10, 20, 40, 80, 160, 320, 400):
            pause.wait(milliseconds / 1000)
            gc.collect()
            if not self._track.record.left_behind():
                return


def _failed(*told: str) -> AssertionError:
    return AssertionError("\n\n".join(filter(None, told)))
