"""Models made at random, and a small stand-in for Triton that runs them: requests are read late, answers come
in any order."""

from __future__ import annotations

import asyncio
import random
import types
from typing import Any, TypeVar

import numpy as np

_T = TypeVar("_T")
HEAD = """\
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.count = 0
        self.kept = np.arange(3.0)
        self.logger = pb_utils.Logger

    def ask(self, model, x):
        request = pb_utils.InferenceRequest(
            model_name=model, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)])
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()

    def counted(self, model, x):
        self.count += 1
        return self.ask(model, x) + self.count

    def scaled(self, x):
        return x * 0.5 + self.count

    def fill(self, x):
        x[:] = x + 1
        return x

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            y = x + 1
            z = np.array([2.0, 3.0, 4.0])
            w = y
            out = []
            items = [x, y * 2, z]
"""


class Maker:
    """Makes the body of an `execute`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lines: list[str] = []
        self._fresh = 0

    def source(self) -> str:
        for _ in range(self._random.randint(2, 7)):
            self._statement(3, False)
        self._say(
            3,
            "responses.append(pb_utils.InferenceResponse([pb_utils.Tensor('OUT', "
            "np.concatenate([np.ravel(o) for o in (*out, x, y, z, w)]))]))",
        )
        return HEAD + "\n".join(self._lines) + "\n        return responses\n"

    def _say(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _pick(self, *of: _T) -> _T:
        return self._random.choice(of)

    def _asking(self) -> str:
        return self._pick("ask", "ask", "ask", "counted")

    def _value(self) -> str:
        return self._pick(
            "x", "y", "z", "w", "x", "y", "z", "items[0]", "x * 2", "y + z", "z[::-1]", "self.kept"
        )

    def _model(self) -> str:
        return self._pick("'add'", "'twice'", "'minus'", "'picky'")

    def _request(self, value: str) -> str:
        return (
            f"pb_utils.InferenceRequest(model_name={self._model()}, requested_output_names=['OUT'], "
            f"inputs=[pb_utils.Tensor('IN', {value})])"
        )

    def _statement(self, depth: int, looped: bool) -> None:
        r = self._random
        kind = r.choices(
            ["ask", "nested", "direct", "split", "many", "compute", "change", "append", "self", "log", "loop",
             "if", "try", "helper", "unknown", "expr", "append_ask", "alias"],
            [8, 2, 5, 5, 2, 4, 2, 3, 1, 1, 3, 1, 1, 2, 1, 1, 3, 1],
        )[0]  # fmt: skip
        name = self._pick("x", "y", "z", "w")
        if depth > 5 and kind in ("loop", "if", "try"):
            kind = "ask"
        if kind == "ask":
            self._say(
                depth,
                f"{name} = self.{self._asking()}({self._model()}, {self._value()})",
            )
        elif kind == "append_ask":
            self._say(depth, f"out.append(self.ask({self._model()}, {self._value()}))")
        elif kind == "nested":
            self._say(
                depth,
                f"{name} = self.ask({self._model()}, self.ask({self._model()}, {self._value()})) "
                f"+ self.ask({self._model()}, {self._value()})",
            )
        elif kind == "direct":
            self._say(depth, f"response = {self._request(self._value())}.exec()")
            self._checked(depth, looped)
            self._say(depth, f"{name} = pb_utils.get_output_tensor_by_name(response, 'OUT').as_numpy()")
        elif kind == "split":
            self._say(depth, f"# about {name}")
            self._say(depth, f"request = {self._request(self._value())}  # made")
            if r.random() < 0.3:
                self._statement(depth, looped)
            self._say(depth, "response = request.exec()")
            self._checked(depth, looped)
            self._say(depth, f"{name} = pb_utils.get_output_tensor_by_name(response, 'OUT').as_numpy()")
        elif kind == "many":
            over = self._pick("items", "(x, y)", "[z, w]")
            after = self._pick("", "", " + 1", " * i")
            if r.random() < 0.4:
                key, end = self._pick(("j: ", "}"), ("", "]"))
                each = f"{key}self.ask({self._model()}, i){after} for j, i in enumerate({over}){end}"
                self._say(depth, f"found = {'{' if key else '['}{each}")
                self._say(depth, "out += found.values()" if key else "out += found")
                return
            begin = self._pick("out += [", "out.append(sum(")
            end = "]" if begin.endswith("[") else "))"
            self._say(depth, f"{begin}self.ask({self._model()}, i){after} for i in {over}{end}")
        elif kind == "compute":
            self._say(depth, f"{name} = {self._value()} - {self._value()} * 0.5")
        elif kind == "alias":
            self._say(depth, f"{name} = {self._pick('x', 'y', 'z', 'w', 'items[1]', 'x[:]', 'self.kept')}")
        elif kind == "change":
            self._say(depth, self._pick(f"{name}[:] = {self._value()}", f"{name} += 1", f"self.fill({name})",
                                        f"items[1] = {name}", "items[0] = y"))  # fmt: skip
        elif kind == "append":
            self._say(depth, f"out.append({self._value()})")
        elif kind == "self":
            self._say(
                depth, self._pick("self.count += 1", f"self.kept = {name}", f"{name} = {name} + self.count")
            )
        elif kind == "log":
            self._say(depth, f"self.logger.log_info(f'at {{float(np.sum({name}))}}')")
        elif kind == "helper":
            self._say(depth, f"{name} = self.scaled({self._value()})")
        elif kind == "unknown":
            self._say(depth, f"{name} = pb_utils.strange({name})")
        elif kind == "expr":
            self._say(depth, f"self.ask({self._model()}, {self._value()})")
        elif kind == "loop":
            var = self._pick("i", "x", "(j, i)", "w")
            over = self._pick(
                "items", "(x, y, z)", "list(items)", "[y, z]", "(v for v in items[:2])", "items[:2]"
            )
            over = f"enumerate({over})" if var == "(j, i)" else over
            self._say(depth, f"for {var.strip('()')} in {over}:")
            if r.random() < 0.2:
                self._say(depth + 1, f"if float(np.sum({name})) > 9:")
                self._say(depth + 2, "continue")
            for _ in range(r.randint(1, 3)):
                self._statement(depth + 1, True)
            if r.random() < 0.6:
                used = "i" if "i" in var else var
                self._say(depth + 1, self._pick(
                    f"out.append(self.ask({self._model()}, {used}))", f"out.append({used} + {name})",
                    f"{name} = self.ask({self._model()}, {used})",
                ))  # fmt: skip
        elif kind == "if":
            self._say(depth, f"if float(np.sum({name})) > 3:")
            for _ in range(r.randint(1, 2)):
                self._statement(depth + 1, looped)
        elif kind == "try":
            self._say(depth, "try:")
            for _ in range(r.randint(1, 3)):
                self._statement(depth + 1, looped)
            self._say(depth, "except pb_utils.TritonModelException:")
            self._say(depth + 1, self._pick(f"out.append({name})", "out.append(z)", f"{name} = z", "pass"))

    def _checked(self, depth: int, looped: bool) -> None:
        self._say(depth, "if response.has_error():")
        ways = ["raise pb_utils.TritonModelException(response.error().message())"] * 3
        ways += ["return [pb_utils.InferenceResponse(error=response.error())]"]
        ways += ["continue"] if looped else []
        self._say(depth + 1, self._random.choice(ways))


class Error(Exception):
    def message(self) -> str:
        return str(self)


class Tensor:
    def __init__(self, name: str, array: Any) -> None:
        self.name, self.array = name, np.asarray(array)

    def as_numpy(self) -> Any:
        return self.array


class Response:
    def __init__(self, tensors: Any = (), error: Any = None) -> None:
        self.tensors, self.problem = list(tensors), error

    def has_error(self) -> bool:
        return self.problem is not None

    def error(self) -> Any:
        return self.problem


class World:
    """What a program is run in, and what came of it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.log: list[str] = []
        self.sent: list[Any] = []
        self.together = 0
        self._open = 0

    def answer(self, model: str, array: Any) -> Response:
        array = np.array(array, np.float64)
        self.sent.append((model, array.tobytes()))
        if model == "picky" and float(np.sum(array)) > 12:
            return Response(error=Error(f"picky: {float(np.sum(array)):.3f}"))
        made = {"add": array + 1, "twice": array * 2 % 7, "minus": 3 - array, "picky": array}[model]
        return Response([Tensor("OUT", made)])

    def utils(self) -> types.ModuleType:
        world = self

        class InferenceRequest:
            def __init__(self, model_name: str, requested_output_names: Any, inputs: Any) -> None:
                self.model_name, self.inputs = model_name, list(inputs)

            def exec(self) -> Response:
                return world.answer(self.model_name, self.inputs[0].array)

            def async_exec(self) -> asyncio.Future[Response]:
                async def run() -> Response:
                    world._open += 1
                    world.together = max(world.together, world._open)
                    await asyncio.sleep(0)
                    found = world.answer(self.model_name, self.inputs[0].array)
                    for _ in range(world._random.randint(0, 6)):
                        await asyncio.sleep(0)
                    world._open -= 1
                    return found

                return asyncio.ensure_future(run())

        out: Any = types.ModuleType("triton_python_backend_utils")
        out.Tensor, out.InferenceRequest, out.InferenceResponse = Tensor, InferenceRequest, Response
        out.TritonModelException = Error
        out.get_input_tensor_by_name = lambda request, name: Tensor(name, request)
        out.get_output_tensor_by_name = lambda response, name: response.tensors[0]
        out.Logger = types.SimpleNamespace(log_info=self.log.append)

        def strange(x: Any) -> Any:
            self.log.append(f"strange {len(self.sent)}")
            return x[::-1].copy()

        out.strange = strange
        return out  # type: ignore[no-any-return]


def run(source: str, seed: int = 0) -> tuple[Any, World]:
    """Run a model; return what came of it, and the world."""
    import sys

    world = World(seed)
    variables: dict[str, Any] = {"__name__": "model"}
    before = sys.modules.get("triton_python_backend_utils")
    sys.modules["triton_python_backend_utils"] = world.utils()
    try:
        exec(compile(source, "model.py", "exec"), variables)
    finally:
        if before is not None:
            sys.modules["triton_python_backend_utils"] = before
    model = variables["TritonPythonModel"]()
    model.initialize({})
    requests = [np.array([1.0, -2.0, 3.0]), np.array([0.5, 4.0, 2.0])]
    said: Any = None
    try:
        answers = model.execute(requests)
        if asyncio.iscoroutine(answers):
            answers = _loop_run(answers)
        said = [(str(a.problem) if a.problem else [t.array.tolist() for t in a.tensors]) for a in answers]
    except Exception as error:
        said = type(error).__name__
    return (said, world.log, model.count, np.asarray(model.kept).tolist()), world


def _loop_run(coroutine: Any) -> Any:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
