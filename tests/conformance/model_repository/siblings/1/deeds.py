"""One function for each thing that may be done with modules beside model.py; each returns its report."""

import builtins
import importlib
import importlib.util
import inspect
import io
import logging
import logging.config
import multiprocessing
import pickle
import pkgutil
import runpy
import sys
import typing
import unittest


def _file(module):
    return None if module.__file__ is None else module.__file__.rpartition("/siblings/")[2]


def names(mine):
    import common
    import helper
    import parts.piece
    import pkg.inner.deep
    import pkg.sub

    modules = (helper, parts, parts.piece, pkg, pkg.sub, pkg.inner, pkg.inner.deep, common, sys.modules["1"])
    own = (mine, helper.Thing, helper.double, pkg.sub.Sub)
    return {
        "modules": [[m.__name__, m.__package__, m.__spec__.name, m.__spec__.parent, _file(m)] for m in modules],
        "classes": [[c.__module__, repr(c).split(" at ")[0]] for c in own],
        "shown": [repr(module).partition(" from ")[0].partition(" (")[0] for module in modules],
        "here": __name__,
    }


def in_sys_modules(mine):
    import helper
    import pkg.sub

    found = [sys.modules["helper"] is helper, sys.modules["pkg"] is pkg, sys.modules["pkg.sub"] is pkg.sub]
    return [*found, sys.modules["1.model"].Mine is mine, "helper" in sys.modules, "nowhere" in sys.modules]


def relative(mine):
    space = vars(sys.modules["1.model"])
    exec("from .helper import Thing as theirs\nimport helper", space)
    return [space["theirs"].__module__, space["theirs"] is space["helper"].Thing, len(inspect.stack()) > 1]


def pickled(mine):
    import helper

    out = []
    for dumps, loads in ((pickle.dumps, pickle.loads), (pickle._dumps, pickle._loads)):
        for what in (helper.Thing, helper.double, mine):
            data = dumps(what)
            out.append([loads(data) is what, b"helper" in data, b"1.model" in data])
        out.append([loads(dumps(helper.Thing(4), protocol)) == helper.Thing(4) for protocol in range(6)])
        out.append(loads(b"clate\nNUMBER\n."))
    return out


def by_name(mine):
    import helper
    import pkg

    return [
        importlib.import_module("helper") is helper,
        importlib.import_module("parts.piece").NUMBER,
        importlib.import_module(".sub", "pkg").NUMBER,
        importlib.util.find_spec("helper").name,
        importlib.util.find_spec("common").origin.rpartition("/")[2],
        importlib.util.find_spec("nowhere"),
        pkgutil.resolve_name("helper:Thing") is helper.Thing,
        [module.name for module in pkgutil.iter_modules(pkg.__path__)],
        inspect.getmodule(helper.Thing) is inspect.getmodule(helper.double) is helper,
        inspect.getsource(helper.double),
        inspect.getsource(mine),
        typing.get_type_hints(helper.Thing)["inner"] == helper.Inner | None,
    ]


def reloaded(mine):
    import helper
    import parts
    import pkg.sub

    helper.COUNT, before = 5, helper.Thing
    out = [importlib.reload(helper) is helper, helper.COUNT, helper.Thing is before, helper.Thing.__module__]
    out += [sys.modules["helper"] is helper, helper.__name__]
    return [*out, *(importlib.reload(m).__name__ for m in (pkg.sub, pkg, parts))]


def forgotten(mine):
    import helper

    del sys.modules["helper"]
    import helper as again

    out = [again is helper, "helper" in sys.modules]
    sys.modules["helper"] = helper
    import helper as third

    return [*out, third is helper]


def replaced_by_itself(mine):
    import replaced

    return [replaced.answer, importlib.import_module("replaced").answer, sys.modules["replaced"].answer]


def logged(mine):
    handlers = {"own": {"class": "formatting.Kept", "formatter": "own"}}
    loggers = {"siblings": {"handlers": ["own"], "level": "INFO", "propagate": False}}
    settings = {"version": 1, "disable_existing_loggers": False, "handlers": handlers, "loggers": loggers}
    logging.config.dictConfig({**settings, "formatters": {"own": {"()": "formatting.Own"}}})
    logging.getLogger("siblings").info("said")
    import formatting

    lines, formatting.Kept.lines = formatting.Kept.lines, []
    return lines


def tested(mine):
    def run(name):
        runner = unittest.TextTestRunner(io.StringIO())
        return unittest.main(name, argv=["here"], exit=False, testRunner=runner).module

    found = run("helper"), run("model")
    import model

    return [*(module.__name__ for module in found), model.Mine is mine, model.Mine.__module__]


def run_as_programs(mine):
    late = importlib.util.find_spec("late").origin
    found = (runpy.run_module("helper"), runpy.run_path(late), runpy.run_module("parts.program", run_name="other"))
    return [[space["__name__"], space.get("NUMBER"), "double" in space] for space in found]


def missing(mine):
    def error(action):
        try:
            action()
        except ImportError as problem:
            return [type(problem).__name__, str(problem), problem.name]

    space = vars(sys.modules["1.model"])
    names = ("nowhere", "helper.deeper", "pkg.nowhere", "parts.nowhere")
    out = [error(lambda name=name: importlib.import_module(name)) for name in names]
    lines = ("helper import nothing", ". import nothing", ".. import helper", ".nothing import x")
    return out + [error(lambda line=line: exec(f"from {line}", space)) for line in lines]


def in_processes(mine):
    import helper

    out = []
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            out.append(pool.apply_async(helper.double, (4,)).get(60))
    return out


# --- as of a library: nothing of a model is in the globals of these functions ---

LIBRARY = """
import asyncio, concurrent.futures, importlib, pickle, sys, threading
import triton_python_backend_utils as pb_utils

POOL = concurrent.futures.ThreadPoolExecutor(1)

def get(name):
    module = importlib.import_module(name)
    assert sys.modules[name] is module
    return module.__name__

def unpickle(data):
    return type(pickle.loads(data)).__module__

def on_a_thread(function, *arguments):
    out = []
    thread = threading.Thread(target=lambda: out.append(function(*arguments)))
    thread.start()
    thread.join()
    return out

def in_a_pool(function, *arguments):
    return POOL.submit(function, *arguments).result()

def deeper(function, *arguments):
    return on_a_thread(on_a_thread, in_a_pool, function, *arguments)

def by_a_callback(function, *arguments):
    out, done = [], threading.Event()
    POOL.submit(int).add_done_callback(lambda _: (out.append(function(*arguments)), done.set()))
    done.wait(10)
    return out

async def _looped(function, *arguments):
    loop = asyncio.get_running_loop()
    called = loop.create_future()
    loop.call_soon(lambda: called.set_result(function(*arguments)))
    later = loop.run_in_executor(None, function, *arguments)
    return [await called, await asyncio.to_thread(function, *arguments), await later]

def in_a_loop(function, *arguments):
    return asyncio.run(_looped(function, *arguments))

def in_a_loop_of_a_thread(function, *arguments):
    return on_a_thread(in_a_loop, function, *arguments)

class Dies:
    def __init__(self, do):
        self.do = do
    def __del__(self):
        self.do()

def in_a_destructor(function, *arguments):
    out = []
    dies = Dies(lambda: out.append(function(*arguments)))
    del dies
    return out

WAYS = [on_a_thread, in_a_pool, deeper, by_a_callback, in_a_loop, in_a_loop_of_a_thread, in_a_destructor]

def ask(model):
    request = pb_utils.InferenceRequest(model_name=model, inputs=[], requested_output_names=[])
    response = request.exec()
    return response.error().message() if response.has_error() else "answered"
"""
_library = {"__name__": "library", "__builtins__": builtins}
exec(LIBRARY, _library)


def from_a_library(mine):
    import helper

    data = pickle.dumps(helper.Thing(7))
    actions = [("unpickle", data), ("get", "helper"), ("get", "late"), ("get", "parts.piece")]
    return [
        [way.__name__, [way(_library[function], argument) for function, argument in actions]]
        for way in _library["WAYS"]
    ]


def bls_from_a_library(mine):
    ways = [_library[name] for name in ("on_a_thread", "in_a_pool", "deeper", "by_a_callback")]
    return [[way.__name__, way(_library["ask"], model)] for way in ways for model in ("identity", "nobody")]
