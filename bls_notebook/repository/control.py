"""Model control: which models are loaded when, in Triton's three modes, and in what order.

``explicit``: models load and unload on request. ``none``: all of the repository's models load at the start,
and stay. ``poll``: as ``none``, and from then on the repository follows its folders: new models load, those
whose files changed load again, those that went away unload.

Guarantees: the models of an ensemble's steps load before it does, and an ensemble leaves service before they
do; it comes back once they do. No lock of one model is held while another's is taken.
"""

from __future__ import annotations

import logging
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.errors import BLSError, ConfigError, ModelLoadError, ModelNotFoundError
from bls_notebook.engine.forked import in_own_process
from bls_notebook.engine.root import root_of
from bls_notebook.engine.waiting.ctrl_c import CtrlC
from bls_notebook.observe.records.repository import ModelRecord

from .config import parse_config, parse_json
from .loading.ensembles import CircularEnsembleError, Dependencies, members_of, refuse
from .records import unavailable_record
from .source.fingerprint import signature
from .source.layout import find_model, model_names
from .source.model_source import ModelSource
from .source.names import check_model_name
from .turns import Turn

__all__ = ["CONTROL_MODES", "ControlMode", "ModelControl", "Poller"]

ControlMode = Literal["explicit", "none", "poll"]
CONTROL_MODES: tuple[ControlMode, ...] = ("explicit", "none", "poll")
_NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"

log = logging.getLogger("bls_notebook")


_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound="ModelControl")


def undivided(method: Callable[Concatenate[_C, _P], _R]) -> Callable[Concatenate[_C, _P], _R]:
    """Keep Ctrl-C out of a change of a repository, but for where it runs code of a model or waits."""

    @wraps(method)
    def call(self: _C, *args: _P.args, **options: _P.kwargs) -> _R:
        if not in_own_process(self._server):
            root_of(self._server)  # says why not
        with CtrlC():
            return method(self, *args, **options)

    return call  # type: ignore[return-value]


class ModelControl(ABC):
    """The part of a repository that decides what is loaded; `ModelRepository` has the rest."""

    paths: tuple[Path, ...]
    control_mode: ControlMode
    _server: Server
    _definitions: dict[str, ModelSource]
    _records: dict[str, dict[int, ModelRecord]]
    _signatures: dict[str, object]

    @abstractmethod
    def _loading_of(self, name: str) -> AbstractContextManager[object]:
        """Return the lock of a name."""

    @abstractmethod
    def _load(self, source: ModelSource, keep: bool = False) -> ModelRecord:
        """Load and put in service; the name's lock is held."""

    @abstractmethod
    def _load_named(
        self,
        name: str,
        config: str | Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
        chain: tuple[str, ...] = (),
    ) -> ModelRecord:
        """Load a model, after those of its steps."""

    def _set_up_control(self, mode: ControlMode, poll_seconds: float | None) -> None:
        if mode not in CONTROL_MODES:
            raise BLSError(
                f"control_mode: got {mode!r}, expected one of {', '.join(map(repr, CONTROL_MODES))}"
            )
        if poll_seconds is not None and not poll_seconds > 0:
            raise BLSError(f"poll_seconds: got {poll_seconds!r}, expected a number above 0, or None")
        self.control_mode = mode
        self._dependencies = Dependencies()
        self._polled: dict[str, object] = {}
        self._problems: dict[str, str] = {}
        self._poll_lock = Turn()
        self._poller: Poller | None = None

    def _begin_control(self, poll_seconds: float | None) -> None:
        """Load what the mode says, and begin to poll."""
        if self.control_mode == "explicit":
            return
        self._follow_folders()
        if self.control_mode == "poll" and poll_seconds is not None:
            self._poller = Poller(weakref.WeakMethod(self._follow_folders), poll_seconds)

    def _may_control(self, name: str, verb: str) -> None:
        """Refuse to load or unload on request, except cells, where the mode does not allow it."""
        if self.control_mode != "explicit" and name not in self._definitions:
            raise ModelLoadError(
                f"model {name!r}: cannot {verb} it: the repository loads its models itself "
                f"(control_mode={self.control_mode!r}); use control_mode='explicit'",
                name,
                _NOT_EXPLICIT,
            )

    # -- polling -------------------------------------------------------------------------------------

    @undivided
    def poll(self) -> list[str]:
        """Look at the folders now; load, load again and unload what has changed there.

        A model that fails to load is tried again the next time, as on Triton.

        Returns
        -------
        list of str
            Names of the models that were loaded or unloaded.

        Raises
        ------
        BLSError
            The mode is not ``poll``.
        """
        if self.control_mode != "poll":
            raise BLSError(
                f"poll: the repository's control_mode is {self.control_mode!r}; make it with "
                "control_mode='poll'"
            )
        return self._follow_folders()

    def _follow_folders(self) -> list[str]:
        changed = []
        with self._poll_lock:
            present = [n for n in model_names(self.paths) if n not in self._definitions]
            for name in present:
                try:
                    check_model_name(name)
                    found = signature(find_model(self.paths, name))
                    if self._polled.get(name) == found:
                        continue
                    self._load_named(name)
                except BLSError as error:
                    if self._problems.get(name) != str(error):
                        log.error("%s", error)
                    self._problems[name] = str(error)
                    continue
                self._problems.pop(name, None)
                self._dependencies.asked_for(name)
                self._polled[name] = found
                changed.append(name)
            for name in [n for n in self._polled if n not in present]:
                del self._polled[name]
                self._unload_named(name, False)
                changed.append(name)
        return changed

    # -- ensembles -----------------------------------------------------------------------------------

    @staticmethod
    def _members(source: ModelSource) -> dict[str, set[int]]:
        """The models of the steps of an ensemble; none for other models, or where the config is wrong."""
        try:
            if "ensemble" not in str(source.config):
                return {}
            given: Any = source.config
            read = parse_json if source.config_is_json else parse_config
            return members_of(read(given, model=source.name))
        except (BLSError, RecursionError):
            return {}  # the load will say what is wrong with it

    def _prepare(self, source: ModelSource, chain: tuple[str, ...]) -> None:
        """Have the models of an ensemble's steps loaded."""
        members = self._members(source)
        name = source.name
        chain = (*chain, name)
        for member in filter(None, members):  # a step without a model is refused with the rest
            if member in chain:
                words = f"circular dependency between ensembles: {member} -> ... -> {name} -> {member}"
                refuse(name, words, "an ensemble cannot be a step of itself", CircularEnsembleError)
            if not self._server.serving(member) and member not in self._definitions:
                try:
                    find_model(self.paths, member)
                except BLSError:
                    self._refuse_missing(name, member)
        for member in filter(None, members):
            if not (member in self._definitions and self._server.serving(member)):
                self._load_member(name, member, chain)

    @staticmethod
    def _refuse_missing(name: str, member: str) -> None:
        refuse(
            name,
            f"ensemble {name} contains models that are not available or ambiguous: {member}",
            f"define '{member}', or put it into the repository",
        )

    def _load_member(self, name: str, member: str, chain: tuple[str, ...]) -> None:
        try:
            self._load_named(member, chain=chain)
        except (ConfigError, ModelNotFoundError, ModelLoadError) as error:
            if self._server.serving(member):
                log.warning("%s; ensemble '%s' goes on with the one that serves", error, name)
                return
            reason = str(getattr(error, "reason", "") or error)
            inner = reason.removeprefix(f"load failed for model '{member}': ").rstrip("\n")
            if isinstance(error, CircularEnsembleError):
                refuse(name, inner, kind=CircularEnsembleError)
            if not reason.startswith("load failed for model"):
                self._refuse_missing(name, member)
            words = f"ensemble '{name}' depends on '{member}' which has no loaded version. "
            refuse(name, f"{words}Model '{member}' loading failed with error: {inner}")

    def _refresh_users(self, name: str) -> None:
        """Check the ensembles that have a model as a step again, now that it has changed."""
        for source in self._dependencies.users(name):
            try:
                with self._loading_of(source.name):
                    current = self._dependencies.wanted(source.name)
                    if current is None:  # somebody has unloaded it meanwhile
                        continue
                    self._load(current)
            except BLSError as error:
                log.warning("%s: it leaves service", error)
                self._take_out_users(source.name, f"unloaded: it needs '{source.name}'")
                self._take_out(source.name, f"unloaded: {error}")
            else:
                self._refresh_users(source.name)

    # -- leaving service -----------------------------------------------------------------------------

    def _unload_named(self, name: str, unload_dependents: bool) -> list[LoadedModel]:
        """Take a model, and the ensembles that need it, out of service; return what left."""
        left = self._take_out_users(name, f"unloaded: it needs '{name}'")
        left += self._take_out(name, "unloaded")
        members = self._dependencies.forget(name)
        if unload_dependents:
            for orphan in self._dependencies.orphans(members):
                left += self._unload_named(orphan, True)
        return left

    def _take_out_users(self, name: str, reason: str) -> list[LoadedModel]:
        return [m for user in self._dependencies.all_users(name) for m in self._take_out(user, reason)]

    def _take_out(self, name: str, reason: str) -> list[LoadedModel]:
        with self._loading_of(name):
            self._leaving(name, self._server.serving(name), reason)
            left = self._server.replace(name, {})
            self._signatures.pop(name, None)
        return left

    def _leaving(self, name: str, versions: Iterable[int], reason: str) -> None:
        """Note that versions leave service; the note changes when they have left."""
        records = self._records.get(name, {})
        for version in versions:
            record = records.get(version)
            if record is not None:
                records[version] = replace(record, state="UNLOADING", reason=reason)

    def _has_left(self, model: LoadedModel) -> None:
        """A version has been finalized."""
        records = self._records.get(model.name, {})
        record = records.get(model.version)
        if record is not None and record.state == "UNLOADING":
            records[model.version] = unavailable_record(
                model.name, model.version, record.source, record.reason or "unloaded"
            )

    def _note_loading(self, source: ModelSource, versions: Iterable[int]) -> None:
        """Note that versions are being loaded, where none serves yet."""
        serving = self._server.serving(source.name)
        records = self._records.setdefault(source.name, {})
        for version in versions:
            if version not in serving:
                records[version] = replace(
                    unavailable_record(source.name, version, source.origin, ""), state="LOADING"
                )

    def _note_failed(self, source: ModelSource, reason: str) -> None:
        """Note why versions could not be loaded; those that serve go on."""
        if self._server.serving(source.name):
            for version, record in list(self._records.get(source.name, {}).items()):
                if record.state == "LOADING":
                    self._note(unavailable_record(source.name, version, source.origin, reason))
            return
        records: Mapping[int, ModelRecord] = self._records.get(source.name, {})
        loading = [v for v, r in records.items() if r.state == "LOADING"]
        for version in loading or [next(iter(source.versions), 1)]:
            self._note(unavailable_record(source.name, version, source.origin, reason))

    def _note(self, record: ModelRecord) -> None:
        self._records.setdefault(record.name, {})[record.version] = record


class Poller:
    """Calls something every so many seconds, in a daemon thread, as long as it exists.

    Parameters
    ----------
    what : weakref.WeakMethod
    seconds : float
    """

    def __init__(self, what: weakref.WeakMethod[Callable[[], object]], seconds: float) -> None:
        self._what = what
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bls-poll", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            call = self._what()
            if call is None:
                return
            try:
                call()
            except BaseException as error:
                log.error("polling the model repository failed: %s: %s", type(error).__name__, error)
            del call

    def stop(self) -> None:
        """Call no more. Does not wait for a call under way."""
        self._stop.set()
