"""Code of the kernel that looks at a worker from inside, such as at its memory: modules that arrive as text.

They run under no name that a model could import. A separate thread calls them, so the model continues.
"""

from __future__ import annotations

import builtins
import threading
from types import SimpleNamespace
from typing import Any

from bls_notebook.backends.processes.worker_link import OWN, Kernel, described

_modules: dict[str, dict[str, Any]] = {}  # the variables of those that have arrived, by name


def probe(kernel: Kernel, instances: list[Any], question: dict[str, Any]) -> None:
    """Call a function of the last module of a question with the instance, and send its result to the kernel."""
    threading.Thread(target=_answer, args=(kernel, instances, question), name="bls-probe", daemon=True).start()


def _answer(kernel: Kernel, instances: list[Any], question: dict[str, Any]) -> None:
    answer: dict[str, Any] = {"op": "probe", "call": question["call"]}
    try:
        for name, text in question["modules"].items():
            if name not in _modules:
                file = f"/{OWN}/{name.replace('.', '/')}.py"
                variables = {
                    "__name__": name,
                    "__file__": file,
                    "__builtins__": {**vars(builtins), "__import__": _import},
                }
                exec(compile(text, f"{OWN}/{name}", "exec"), variables)
                _modules[name] = variables
        answer["result"] = _modules[name][question["function"]](instances[0], *question["arguments"])
    except BaseException as error:
        answer["error"] = described(error)
    try:
        kernel.side.send(answer)
    except EOFError:
        pass


def _import(name: str, *rest: Any) -> Any:
    """Import a module, or return one that has arrived."""
    return SimpleNamespace(**_modules[name]) if name in _modules else builtins.__import__(name, *rest)
