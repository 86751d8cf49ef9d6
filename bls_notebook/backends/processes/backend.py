"""The Python backend with a process for each instance, as on Triton.

Guarantees: every call returns or raises, whatever happens to the process. A process that dies is started again, with
the model's import and `initialize`; a request that comes meanwhile waits for that. `ready` is False until then.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any
from weakref import ref

from bls_notebook.backends.protocol import ModelError, VersionFiles, WorkerCode
from bls_notebook.devices.registry import simulated_gpus, simulation_of_workers
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.pb_utils.request import InferenceRequest

from . import fork_server
from .environments import Environment
from .messages import Message
from .process import ProcessDiedError, WorkerProcess
from .sources import text_of
from .upcalls import Upcalls

log = logging.getLogger("bls_notebook")
PLACE_SECONDS = 2.0  # until a process says where its code is; native code may keep it from that
_places = count(1)
_TORCH = (
    "the model imports PyTorch, which sees no simulated GPU in its own process, only CuPy does; load it in the "
    "kernel (isolation='kernel')"
)


@dataclass(frozen=True)
class Prelude:
    """Modules that a worker runs before the model: by name the source text, and the arguments of its ``begin``.

    ``begin(arguments, note)`` is called in the worker; `noted` gets what it passes to ``note(kind, text)``, in the
    context of the execution that runs then.
    """

    modules: Mapping[str, tuple[str, Mapping[str, Any]]]
    noted: Callable[[str, str], None]


@dataclass(frozen=True)
class ModelCode:
    """A model's code, for a worker: its main file, the search path of its modules, and texts in place of files."""

    folders: Sequence[str]
    sources: Mapping[str, tuple[str, str]]  # the name and the text to run, by file
    own_api: bool = False  # the folders have a copy of Triton's module, which a server, too, imports
    prelude: Prelude | None = None


class ModelProcess:
    """The home of one instance in another process: starts it, and starts it again when it has died.

    `lost` is called on another thread to have `revive` called at home, and then its argument.
    """

    def __init__(
        self, name: str, environment: Environment, code: ModelCode, lost: Callable[[Callable[[], object]], None]
    ) -> None:
        self.name = name
        self.file = ""  # model.py
        self.execute_code: WorkerCode | None = None
        self.lacks_gpus = False  # the model imports PyTorch, which sees no simulated GPU in a process
        self.lost = lost
        self._environment, self._code = environment, code
        self._files: VersionFiles | None = None
        self._arguments: dict[str, str] | None = None  # of `initialize`, once it has succeeded
        self._process: WorkerProcess | None = None
        self._guard = threading.Lock()  # held to replace the process
        self.upcalls = Upcalls(None if code.prelude is None else code.prelude.noted)
        self._closed = self._serves = self._used = False

    @property
    def serves(self) -> bool:
        """True if the process lives and `initialize` has ended well."""
        return self._serves and self._process is not None and self._process.alive

    @property
    def code_files(self) -> list[str]:
        """The files of the model's code, as tracebacks name them."""
        return [name for name, _ in self._code.sources.values()] or [self.file]

    @property
    def pid(self) -> int:
        """The process's number; 0 without one."""
        return self._process.pid if self._process is not None and self._process.alive else 0

    def run(self, op: str, *tensors: Any, key: Any = None, **header: Any) -> Message:
        """Run a step and return its answer; raise the model's exception. Called at home. `key`: see `Channel`."""
        process = self._process
        if process is None:
            raise self._error("it has no process")
        try:
            answer = process.run(op, tensors, key, **header)
        except ProcessDiedError as error:
            self.upcalls.forget()
            raise self._error(str(error)) from None
        self.upcalls.ended(answer.header)
        self.check(answer)
        return answer

    def check(self, answer: Message) -> None:
        """Raise the exception that an answer carries."""
        if "error" in answer.header:
            raise ModelError.of(answer.header["error"], self._own_places())
        if answer.header.get("interrupted"):
            raise asyncio.CancelledError

    def _own_places(self) -> list[str]:
        """Return the folders, and the names of files, of the model's own code."""
        return [*self._code.folders, *(name for name, _ in self._code.sources.values())]

    def _error(self, reason: str) -> ModelError:
        return ModelError.died(self.name, reason, self._own_places())

    def open(self, files: VersionFiles) -> bool:
        """Start the process and import the model; return whether it has an `auto_complete_config`."""
        self._files = files
        if self._closed:
            raise self._error("its instance has been closed")
        if not self._used:
            self._used = True
            fork_server.use(self._environment)
        process, owner = WorkerProcess(self._environment), ref(self)

        def ended() -> None:
            died = owner()
            if died is not None:
                died._died(process)

        with self._guard:
            self._process = process
        process.adopt(self.upcalls, ended)
        folder = files.backend_folder
        file = files.folder / (files.filename or "model.py") if folder is None else folder / "model.py"
        self.file = str(file)
        if not file.is_file():
            raise FileNotFoundError(f"Python model file not found in '{file}'")
        answer = self.run(
            "open", name=f"{files.version}.{file.stem}" if folder is None else "model", file=str(file),
            folders=list(self._code.folders), sources=dict(self._code.sources), own_api=self._code.own_api,
            directory=str(files.folder), instance=self.name,
            prelude={} if self._code.prelude is None else dict(self._code.prelude.modules),
            simulation=_simulation(),
        )  # fmt: skip
        self.lacks_gpus = answer.header["torch"] and simulated_gpus() > 0
        return bool(answer.header["completes"])

    def initialize(self, arguments: dict[str, str]) -> dict[str, Any]:
        """Run the model's `initialize`; return what its class has."""
        self.name = arguments["model_instance_name"]
        header = self.run("initialize", arguments=arguments).header
        self._arguments, self._serves = arguments, True
        self.execute_code = WorkerCode(*header["execute"]) if header["execute"] else None
        return header

    def revive(self) -> None:
        """Start a process that has died. Called at home."""
        if self.serves or self._closed or self._files is None or self._arguments is None:
            return
        log.warning(
            "the process of %s is started again; on a server (24.10) its requests fail until the model is loaded again",
            self.name,
        )
        self._serves = False
        try:
            self.open(self._files)
            self.initialize(self._arguments)
        except BaseException:
            if self._process is not None:
                self._process.close()
            raise

    def _died(self, process: WorkerProcess) -> None:
        with self._guard:
            replaced = process is not self._process
            if not replaced:
                self.upcalls.forget()
        if self._arguments is not None and not self._closed:
            log.error("Stub process '%s' is not healthy: %s", self.name, process.died.partition(". Its last words:")[0])
            if not replaced:
                self.lost(lambda: None)

    def interrupt(self) -> None:
        """Interrupt the code that runs at home."""
        if self._process is not None:
            self._process.interrupt()

    def begin(self, message: dict[str, Any], tensors: Sequence[Any]) -> Future[Message]:
        """Send a message on the side, and return a future of the answer, which raises if the process dies."""
        process = self._process
        answer: Future[Message] = Future()
        if process is None:
            answer.set_exception(self._error("it has no process"))
            return answer

        def come(message: Message | None) -> None:
            if message is None:  # by now, another process may serve the instance
                answer.set_exception(self._error(process.died))
            else:
                answer.set_result(message)

        kind = "ended" if message["op"] == "begin" else message["op"]
        process.expect(kind, message["call"], come)
        try:
            process.side.send(message, tensors)
        except EOFError:
            pass  # `come` is called
        return answer

    def place(self) -> tuple[str, int, str, int, str] | None:
        """Return where the model's code is: model, version, file, line and function; None if that is unknown."""
        if self._files is None:
            return None
        try:
            places = self.begin({"op": "where", "call": next(_places)}, ()).result(PLACE_SECONDS).header["places"]
        except Exception:  # it has died, or does not answer
            return None
        own = tuple(self._own_places())
        files = self._files
        return next(((files.name, files.version, *each) for each in places if each[0].startswith(own)), None)

    def cancel(self, number: int, done: Callable[[], bool]) -> None:
        """Cancel an async execution, and kill the process if it continues."""
        process = self._process
        if process is not None:
            try:
                process.side.send({"op": "cancel", "call": number})
            except EOFError:
                return
            process.kill_unless(done)

    def finalize(self) -> None:
        """Run the model's `finalize`; a process that ends now is not started again."""
        serves, self._closed = self.serves, True
        if serves:
            self.run("finalize")

    def close(self) -> None:
        """End the process."""
        self._closed = True
        if self._process is not None:
            self._process.close()
        if self._used:
            self._used = False
            fork_server.leave(self._environment)
        self.upcalls.forget()

    def __del__(self) -> None:
        # An instance that was never closed. While Python ends, no thread starts; the worker ends with its connection.
        if getattr(self, "_used", False) and not sys.is_finalizing():
            threading.Thread(target=_end_process, args=(self._process, self._environment), daemon=True).start()


def _simulation() -> Sequence[Any]:
    """Return the simulated GPUs for a worker: the texts of their modules, their number and their bytes; or nothing."""
    simulated = simulation_of_workers()
    if simulated is None:
        return ()
    return {name: text_of(name) for name in simulated.modules}, simulated.count, simulated.capacity


def _end_process(process: WorkerProcess | None, environment: Environment) -> None:
    if process is not None:
        process.close()
    fork_server.leave(environment)


class ProcessModel:
    """One version of a Python model whose instances are processes; the constructor imports it in the first one."""

    def __init__(self, new_process: Callable[[], ModelProcess], files: VersionFiles) -> None:
        self._new, self._files = new_process, files
        self._first: ModelProcess | None = new_process()
        self._completes = self._first.open(files)
        self.warnings: tuple[str, ...] = (_TORCH,) if self._first.lacks_gpus else ()

    @property
    def auto_complete_config(self) -> Callable[[ModelConfig], ModelConfig] | None:
        return self._complete if self._completes and self._first is not None else None

    def _complete(self, config: ModelConfig) -> Any:
        first, self._first = self._first, None  # the first instance has another process, as on a server
        assert first is not None
        try:
            header = first.run("complete", config=json.dumps(config.as_dict())).header
        finally:
            first.close()
        if "config" in header:
            return ModelConfig(header["config"])
        if "problem" in header:
            return _Unserializable(header["problem"])
        return _stand_in(["builtins", header["returned"]])

    def close(self) -> None:
        """End the process of a model without instances."""
        if self._first is not None:
            self._first.close()

    def make_instance(self, arguments: dict[str, str]) -> ProcessInstance:
        """Return a new, initialized instance in its own process."""
        process, self._first = self._first, None
        if process is None:
            process = self._new()
            process.open(self._files)
        return ProcessInstance(process, process.initialize(arguments))


class _Unserializable(ModelConfig):
    """A configuration with values that JSON cannot represent."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def as_dict(self) -> dict[str, Any]:
        raise TypeError(self._problem)


def _stand_in(kind: Sequence[str] | None) -> Any:
    """Return an object of a class with this module and name, in place of one that a worker cannot send; or None."""
    return None if kind is None or kind[1] is None else type(kind[1], (), {"__module__": kind[0]})()


class ProcessInstance:
    """One instance of a Python model in its own process."""

    def __init__(self, process: ModelProcess, traits: Mapping[str, Any]) -> None:
        self.process = process
        self.asks_ready: bool = traits["asks_ready"]
        self.is_async: bool = traits["is_async"]
        self.execute: Callable[[list[InferenceRequest]], Any]
        self.execute = self._execute_async if self.is_async else self._execute
        if not traits["has_execute"]:
            self.execute = self._no_execute

    def _no_execute(self, requests: list[InferenceRequest]) -> Any:
        raise TritonModelException(f"Python model {self.process.file} does not implement `execute` method.")

    def _execute(self, requests: list[InferenceRequest]) -> Any:
        if not self.process.serves:
            self.process.revive()
        number = self.process.upcalls.call(caller_var.get())
        rows, tensors = self.process.upcalls.packed(requests, number)
        key = rows[0] if len(rows) == 1 and rows[0][1] is None else None
        answer = self.process.run("execute", *tensors, key=key, call=number, requests=rows)
        return self._returned(answer, requests)

    async def _execute_async(self, requests: list[InferenceRequest]) -> Any:
        process = self.process
        if not process.serves:
            await _called(process.lost)
        number = process.upcalls.call(caller_var.get())
        rows, tensors = process.upcalls.packed(requests, number)
        answer = process.begin({"op": "begin", "call": number, "requests": rows}, tensors)
        del tensors
        waiting = asyncio.wrap_future(answer)
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            process.cancel(number, answer.done)
            await asyncio.wait([waiting])  # the instance is busy until then
            waiting.exception()
            raise
        message = answer.result()
        process.upcalls.ended(message.header)
        process.check(message)
        return self._returned(message, requests)

    def _returned(self, answer: Message, requests: list[InferenceRequest]) -> Any:
        """Return what `execute` returned."""
        header = answer.header
        for request, flags in zip(requests, header["flags"], strict=True):
            request._release_flags = flags
        if "left" in header:
            requests[:] = [requests[number] if number >= 0 else None for number in header["left"]]  # type: ignore[misc]
        if "responses" not in header:
            return _stand_in(header["returned"])
        tensors = self.process.upcalls.gpus.received(answer.take(header.get("rows", ())))
        out: list[Any] = []
        for packed in header["responses"]:
            if packed is None or isinstance(packed[0], str):
                out.append(_stand_in(packed))
            else:
                out.append(self.process.upcalls.made(packed, tensors))
        return out

    def finalize(self) -> None:
        """Run the model's `finalize` and end the process."""
        try:
            self.process.finalize()
        finally:
            self.process.close()

    def ready(self) -> bool:
        """Return whether the process serves, and its model's `is_ready` returns True."""
        if not self.process.serves:
            return False
        if not self.asks_ready:
            return True
        number = self.process.upcalls.call(caller_var.get())
        answer = self.process.begin({"op": "ready", "call": number}, ()).result()
        self.process.check(answer)
        return bool(answer.header["ready"])


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def _called(begin: Callable[[Callable[[], object]], None]) -> None:
    """Await the call of the function that `begin` is given."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    begin(partial(loop.call_soon_threadsafe, partial(_end, ended)))
    await ended
