"""The worker: the process of one instance of a Python model. `main` runs it until the kernel closes the connection.

It runs from its source text (`sources`), so nothing of this package is installed in its environment; its Python may be
3.8 and its NumPy 1.20. Two channels lead to the kernel. On the first, the home of the instance asks for steps, which
run on the main thread, and this thread asks back (for BLS and such) while a step runs. Other threads use the second.

Guarantees: the import of the model, `initialize`, sync `execute` and `finalize` run on the main thread. The process
ends with the kernel.
"""

from __future__ import annotations

import _thread
import asyncio
import faulthandler
import gc
import importlib.machinery
import importlib.util
import inspect
import json
import operator
import os
import signal
import socket
import sys
import threading
import time
import traceback
from contextvars import copy_context
from functools import partial
from typing import Any
from weakref import WeakSet

from bls_notebook.backends.processes import worker_exchange, worker_gpus
from bls_notebook.backends.processes.messages import Channel, Message, request_of
from bls_notebook.backends.processes.worker_link import (
    OWN,
    Kernel,
    ModelOutput,
    caller_here,
    current_number,
    described,
    end_process,
    flush,
    places,
    taken,
)
from bls_notebook.backends.processes.worker_objects import ReceivedTicket, ServerProxy, WorkerCaller, packed_answer
from bls_notebook.backends.processes.worker_probes import probe
from bls_notebook.pb_utils import _runtime, stub_modules
from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse


class _Loader(importlib.machinery.SourceFileLoader):
    """Imports a file of a repository, without writing bytecode beside it: as in the kernel."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0) -> None:
        """Write nothing."""


_LOADERS = (
    (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
    (_Loader, importlib.machinery.SOURCE_SUFFIXES),
    (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
)


def _finder(folder: str) -> Any:
    """Return the finder of modules in a folder; raise ImportError if packages are installed there."""
    if "-packages" in folder or folder.startswith((sys.prefix + os.sep, sys.base_prefix + os.sep)):
        raise ImportError(folder)
    return importlib.machinery.FileFinder.path_hook(*_LOADERS)(folder)


class WorkerInstance:
    """The model's code in this process."""

    def __init__(self, kernel: Kernel, opening: dict[str, Any]) -> None:
        self.kernel = kernel
        self._names: tuple[str, str] = opening["instance"], opening["directory"]
        self._sources: dict[str, list[str]] = opening["sources"]
        self._file: str = opening["file"]
        self.model: Any = None
        self.folders: list[str] = opening["folders"]
        self.loop: Any = None
        self._tasks: dict[int, Any] = {}
        self.executing: dict[int, int] = {}  # when each execution began (ns), by its number
        self.loop_thread = 0
        self._decoupled = False
        self._received: WeakSet[ReceivedTicket] = WeakSet()  # of a decoupled model
        self._collecting = threading.Lock()
        kernel.server = ServerProxy(kernel)
        caller_here.set(WorkerCaller(kernel, 0, *self._names, may_send=False))
        _runtime.loose_family = partial(kernel.server.metric_family, "", "")
        _runtime.finders.append(lambda frame: WorkerCaller(kernel, 0, *self._names))
        if opening["simulation"]:
            texts, count, capacity = opening["simulation"]
            worker_gpus.simulate(texts, count, capacity, _own_modules)
        sys.path_hooks.insert(0, _finder)
        sys.path_importer_cache.clear()
        sys.path.extend(opening["folders"])
        sys.modules[stub_modules.API] = api = stub_modules.utils_module()
        if opening["own_api"]:
            del sys.modules[stub_modules.API]
        sys.modules[stub_modules.C_API] = stub_modules.c_module()
        for name, (text, arguments) in opening["prelude"].items():
            variables: dict[str, Any] = {"__name__": name}
            exec(compile(text, f"{OWN}/{name}", "exec"), variables)
            variables["begin"](arguments, self._note)
        module = self._import(opening["name"])
        stub_modules.add_names(sys.modules.get(stub_modules.API, api))
        self._class: Any = getattr(module, "TritonPythonModel", None)
        if self._class is None:  # Triton's message, with its name for the module
            raise AttributeError(f"module '{opening['name']}' has no attribute 'TritonPythonModel'")

    def _note(self, kind: str, text: str) -> None:
        """Tell the kernel about a prelude's observation; answers and reports wait for all but files."""
        header = {"kind": kind, "text": text, "call": current_number()}
        if kind == "file":
            self.kernel.tell({"op": "note", **header})
        else:
            self.kernel.ask("ask_note", **header)

    def _import(self, name: str) -> Any:
        loader = _Loader(name, self._file)
        spec: Any = importlib.util.spec_from_file_location(name, self._file, loader=loader)
        module = importlib.util.module_from_spec(spec)
        package, _, tail = name.rpartition(".")
        if package:
            sys.modules.setdefault(package, type(sys)(package)).__path__ = [os.path.dirname(self._file)]
        sys.modules[name] = module
        shown = self._sources.get(self._file)
        if shown is None:
            spec.loader.exec_module(module)
        else:  # a cell: tracebacks name it
            exec(compile(shown[1], shown[0], "exec", dont_inherit=True), vars(module))
        if package:
            setattr(sys.modules[package], tail, module)
        return module

    @property
    def opened(self) -> dict[str, Any]:
        return {"completes": hasattr(self._class, "auto_complete_config"), "torch": "torch" in sys.modules}

    def complete(self, config: str) -> dict[str, Any]:
        """Return the configuration that `auto_complete_config` returns, as JSON, or why there is none."""
        result = self._class.auto_complete_config(ModelConfig(config))
        if not isinstance(result, ModelConfig):
            return {"returned": None if result is None else type(result).__name__}
        try:
            return {"config": json.dumps(result.as_dict())}
        except (TypeError, ValueError) as error:
            return {"problem": str(error)}

    def initialize(self, arguments: dict[str, str]) -> dict[str, Any]:
        self._names = arguments["model_instance_name"], self._names[1]
        policy = json.loads(arguments["model_config"]).get("model_transaction_policy", {})
        self._decoupled = bool(policy.get("decoupled"))
        caller_here.set(WorkerCaller(self.kernel, 0, *self._names, may_send=False))
        self.model = self._class()
        if hasattr(self.model, "initialize"):
            self.model.initialize(arguments)
        execute = getattr(self.model, "execute", None)
        return {
            "is_async": inspect.iscoroutinefunction(execute),
            "has_execute": execute is not None,
            "execute": _place_of(execute),
            "asks_ready": hasattr(self.model, "is_ready"),
        }

    def requests(self, message: Message) -> list[InferenceRequest]:
        tensors = worker_exchange.received(message.take(message.header.get("rows", ())), self.kernel)
        out = []
        for number, options, outputs, model, version, inputs in message.header["requests"]:
            number = number or message.header["call"]
            request = request_of(options, outputs, model, version, [tensors.pop(0) for _ in range(inputs)])
            request._answerable = ReceivedTicket(self.kernel, number)
            if self._decoupled:
                self._received.add(request._answerable)
            out.append(request)
        return out

    def execute(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Run a sync `execute`; return the header of the answer and its tensors."""
        caller, number = caller_here.get(), message.header["call"]
        caller_here.set(WorkerCaller(self.kernel, number, *self._names))
        self.executing[number] = time.perf_counter_ns()
        try:
            requests = self.requests(message)
            returned = self.model.execute(given := list(requests))
            if inspect.iscoroutine(returned):
                returned = asyncio.run(returned)
            return self._result(returned, requests, given)
        finally:
            self.executing.pop(number)
            caller_here.set(caller)
            if self._received:
                self._leave_to_senders()

    def _result(
        self, returned: Any, requests: list[InferenceRequest], given: list[InferenceRequest]
    ) -> tuple[dict[str, Any], list[Any]]:
        header: dict[str, Any] = {"flags": [r._release_flags for r in requests]}
        if len(given) != len(requests) or not all(map(operator.is_, given, requests)):
            numbers = {id(request): number for number, request in enumerate(requests)}
            header["left"] = [numbers.get(id(request), -1) for request in given]
        if self.kernel.read:
            header["read"] = taken(self.kernel.read)
        tensors: list[Any] = []
        if returned is None or not isinstance(returned, list):
            header["returned"] = None if returned is None else _type_of(returned)
            return header, tensors
        responses: list[Any] = []
        for response in returned:
            if isinstance(response, InferenceResponse):
                responses.append(packed_answer(response))
                tensors += [] if response._error is not None else response._outputs
            else:
                responses.append(None if response is None else _type_of(response))
        header["responses"] = responses
        return header, worker_exchange.sent(tensors, self.kernel)

    def begin(self, message: Message) -> None:
        """Start an async `execute` in the instance's loop. Called on the reader's thread."""
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self._run_loop, name="bls-loop", daemon=True).start()
        number = message.header["call"]
        context = copy_context()
        context.run(caller_here.set, WorkerCaller(self.kernel, number, *self._names))

        def start() -> None:
            self.executing[number] = time.perf_counter_ns()
            self._tasks[number] = task = context.run(self.loop.create_task, self._serve(message))
            task.add_done_callback(ended)

        def ended(_: object) -> None:
            self._tasks.pop(number, None)
            self.executing.pop(number, None)

        self.loop.call_soon_threadsafe(start)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop_thread = threading.get_ident()
        while True:
            try:
                self.loop.run_forever()
            except BaseException:
                traceback.print_exc()

    async def _serve(self, message: Message) -> None:
        header: dict[str, Any]
        tensors: list[Any] = []
        try:
            requests = self.requests(message)
            returned = await self.model.execute(given := list(requests))
            header, tensors = self._result(returned, requests, given)
            del requests, returned, given
        except asyncio.CancelledError:
            header = {"interrupted": True}
        except BaseException as error:
            header = {"error": described(error), "read": taken(self.kernel.read)}
        self._leave_to_senders()
        flush()
        ended = {"op": "ended", "call": message.header["call"]}
        try:
            self.kernel.side.send({**header, **ended}, tensors)
        except EOFError:
            pass
        except BaseException as error:  # no memory, for example
            self.kernel.side.send({"error": described(error), **ended})

    def _leave_to_senders(self) -> None:
        """Collect garbage while senders are left, as the kernel does: a dropped one may be in a reference cycle."""
        if self._received and self._collecting.acquire(False):
            try:
                _thread.start_new_thread(self._collect, ())  # without memory, `Thread.start` may wait forever
            except (RuntimeError, MemoryError):  # the next request tries again
                self._collecting.release()

    def _collect(self) -> None:
        pause = 1.0
        while self._received:
            time.sleep(pause)
            gc.collect()
            pause = min(2 * pause, 60.0)
        self._collecting.release()
        self._leave_to_senders()  # of a request that came meanwhile

    def tasks(self) -> dict[int, Any]:
        """Return the running async executions by their numbers."""
        return self._tasks.copy()

    def cancel(self, number: int) -> None:
        """Cancel an async execution. Called on the reader's thread."""

        def cancel() -> None:
            task = self._tasks.get(number)
            if task is not None:
                self.loop.call_soon(task.cancel)  # after its first step: a task that has not begun would not answer

        if self.loop is not None:
            self.loop.call_soon_threadsafe(cancel)  # after the `start` of `begin`

    def ready(self, number: int) -> None:
        """Answer whether the model's `is_ready` returns True."""
        header: dict[str, Any] = {"op": "ready", "call": number, "ready": False}
        try:
            ready = self.model.is_ready()
            if inspect.isawaitable(ready):

                async def wait(awaited: Any = ready) -> Any:
                    return await awaited

                ready = asyncio.run(wait())
            header["ready"] = ready is True
        except BaseException as error:
            header["error"] = described(error)
        self.kernel.side.send(header)

    def finalize(self) -> None:
        model, self.model = self.model, None
        if hasattr(model, "finalize"):
            model.finalize()
        del model
        gc.collect()


def _place_of(function: Any) -> list[Any] | None:
    """Return the file, the name and the first line of a function; None if it is not Python's."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    if not isinstance(code, type(_place_of.__code__)):
        return None
    return [code.co_filename, code.co_name, code.co_firstlineno]


def _type_of(value: object) -> list[str]:
    return [type(value).__module__, type(value).__qualname__]


def _key_of(answer: dict[str, Any]) -> Any:
    """Return what the header of an answer depends on, if it is of an `execute` that returned plain responses."""
    responses = answer.get("responses")
    if responses is None or "read" in answer or "left" in answer or len(responses) != 1 or responses[0] is None:
        return None
    if len(responses[0]) != 3 or responses[0][1] is not None:  # no response, or one with an error
        return None
    return (*responses[0], *answer["flags"], *answer.get("dropped", (-1,)))


def _read_side(kernel: Kernel, instance: list[WorkerInstance]) -> None:
    try:
        while True:
            message = kernel.side.receive()
            op = message.header.get("op")
            if op is None:
                kernel.answered(message)
            elif op == "interrupt":
                kernel.interrupt(message.header["step"])
            elif op == "begin":
                instance[0].begin(message)
            elif op == "cancel":
                instance[0].cancel(message.header["call"])
            elif op == "where":
                found = places(kernel.main, kernel.step, list(instance[0].tasks().values()) if instance else [])
                kernel.side.send({"op": "where", "call": message.header["call"], "places": found})
            elif op == "probe":
                probe(kernel, instance, message.header)
            elif op == "ready":
                threading.Thread(target=instance[0].ready, args=(message.header["call"],), daemon=True).start()
            message = None  # type: ignore[assignment]  # an idle worker must not keep tensors alive
    except EOFError:
        os._exit(0)  # the kernel has gone
    except BaseException:  # such as a lack of memory
        end_process()


def _no_breakpoint(*_: Any, **__: Any) -> None:
    print(
        "breakpoint(): the model runs in a process of its own, where no prompt can open; run it in the kernel: "
        "--in-kernel in the first line of its cell, or repo.load(name, isolation='kernel')",
        file=sys.stderr,
    )


def _end_with_kernel(lifeline: int) -> None:
    """Let Linux kill this process when the kernel has ended, also while native code does not release the GIL."""
    if sys.platform.startswith("linux"):
        import fcntl

        fcntl.fcntl(lifeline, 10, signal.SIGKILL)  # F_SETSIG, which Python does not name
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | fcntl.FASYNC)


def main(home_file: int, side_file: int, lifeline: int) -> None:
    """Serve the kernel until it closes the connection."""
    faulthandler.enable(2, all_threads=False)
    for file in (home_file, side_file, lifeline):
        os.set_inheritable(file, False)
    _end_with_kernel(lifeline)
    home, side = (Channel(socket.socket(fileno=file)) for file in (home_file, side_file))
    kernel = Kernel(home, side)
    sys.stdout, sys.stderr = ModelOutput(kernel, "stdout", 1), ModelOutput(kernel, "stderr", 2)
    sys.breakpointhook = _no_breakpoint
    instance: list[WorkerInstance] = []
    threading.Thread(target=_read_side, args=(kernel, instance), name="bls-reader", daemon=True).start()
    steps: dict[str, Any] = {
        "open": lambda header: instance.append(WorkerInstance(kernel, header)) or instance[0].opened,  # type: ignore[func-returns-value]
        "complete": lambda header: instance[0].complete(header["config"]),
        "initialize": lambda header: instance[0].initialize(header["arguments"]),
        "finalize": lambda header: instance[0].finalize() or {},  # type: ignore[func-returns-value]
    }
    while True:
        try:
            message = home.receive()
        except EOFError:
            break
        tensors: list[Any] = []
        step, op, call = message.header["step"], message.header["op"], message.header.get("call", 0)
        if op == "execute":

            def execute(message: Message = message, tensors: list[Any] = tensors) -> dict[str, Any]:
                header, tensors[:] = instance[0].execute(message)
                return header

            answer = kernel.run(step, execute)
            del execute
        else:
            answer = kernel.run(step, partial(steps[op], message.header))
        message = None  # type: ignore[assignment]
        flush()
        answer["done"] = True
        if kernel.dropped:
            dropped = taken(kernel.dropped)
            answer["dropped"] = [0] if dropped == [call] else dropped
        if kernel.read:
            answer["read"] = answer.get("read", []) + taken(kernel.read)
        try:
            key = _key_of(answer)
            if key is None:
                home.send({**answer, "call": call}, tensors, waits=True)
            else:
                home.send_alike(key, partial(dict, answer), step, call, tensors)
        except EOFError:
            break
        del answer, tensors
    flush()


# Simulated GPUs import them later, when the model can import only an installed package of this name.
_own_modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "bls_notebook"}
