"""Ways to make an array, and ways to keep hold of one: the test of isolation goes through all of them.

Models import this module too, so that callers and callees hold in the same ways.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from bls_notebook.devices import dlpack
from bls_notebook.pb_utils import Tensor

Array = Any
LARGE, TINY = 5000, 16


def fresh(size: int) -> Array:
    return np.arange(size, dtype=np.float32)


def _of_bytearray(size: int) -> Array:
    return np.frombuffer(bytearray(fresh(size).tobytes()), np.float32)


def _read_only(size: int) -> Array:
    array = fresh(size)
    array.flags.writeable = False
    return array


def _of_ctypes(size: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_float * size)(*range(size)))


def _foreign(size: int) -> Array:
    """Memory of an object that NumPy knows by its interface only."""

    class Memory:
        def __init__(self, array: Array) -> None:
            self.array = array
            self.__array_interface__ = array.__array_interface__

    return np.asarray(Memory(fresh(size)))


# Name -> an array 0, 1, 2, ... of that size.
MAKERS: dict[str, Callable[[int], Array]] = {
    "fresh": fresh, "view": lambda n: fresh(n)[:], "slice": lambda n: np.arange(-5, n + 5, dtype=np.float32)[5:-5],
    "reshaped": lambda n: fresh(n).reshape(-1, 4).reshape(-1),
    "other type": lambda n: fresh(n).view(np.uint8).view(np.float32),
    "strided": lambda n: np.lib.stride_tricks.as_strided(fresh(n)),
    "not contiguous": lambda n: np.repeat(fresh(n), 2)[::2],
    "broadcast": lambda n: np.broadcast_to(fresh(n), (2, n))[1], "bytearray": _of_bytearray,
    "bytes": lambda n: np.frombuffer(fresh(n).tobytes(), np.float32), "read only": _read_only,
    "read only view": lambda n: _read_only(n)[:], "ctypes": _of_ctypes, "foreign": _foreign,
    "capsule": lambda n: dlpack.view_of_capsule(fresh(n).__dlpack__()), "dlpack": lambda n: np.from_dlpack(fresh(n)),
    "recarray": lambda n: fresh(n).view(np.recarray),
}  # fmt: skip


def _frame(array: Array) -> types.TracebackType | None:
    def fails(held: Array) -> None:
        raise ValueError

    try:
        fails(array)
    except ValueError as error:
        return error.__traceback__
    return None


def _frames_array(traceback: Any) -> Array:
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_locals["held"]


def _suspended(array: Array) -> Any:
    def walk(held: Array) -> Any:
        yield None
        yield held

    generator = walk(array)
    next(generator)
    return generator


class Node:
    """An object that only the garbage collector can free."""

    def __init__(self, array: Array) -> None:
        self.me, self.array = self, array


def _node(reference: Any) -> Array | None:
    node = reference()
    return None if node is None else node.array


def _closure(array: Array) -> Callable[[], Array]:
    return lambda: array


def _in_objects(array: Array) -> Array:
    out = np.empty(1, np.object_)
    out[0] = array
    return out


# Name -> (how to keep hold of an array, how to get at its memory later; None where it is gone).
HOLDERS: dict[str, tuple[Callable[[Array], Any], Callable[[Any], Array | None]]] = {
    "nothing": (lambda a: None, lambda k: None),
    "variable": (lambda a: a, lambda k: k),
    "list": (lambda a: [a], lambda k: k[0]),
    "dict": (lambda a: {"a": a}, lambda k: k["a"]),
    "attribute": (lambda a: types.SimpleNamespace(a=a), lambda k: k.a),
    "closure": (_closure, lambda k: k()),
    "default argument": (lambda a: lambda x=a: x, lambda k: k()),
    "partial": (lambda a: functools.partial(np.asarray, a), lambda k: k()),
    "view": (lambda a: a[:], lambda k: k),
    "part": (lambda a: a[3:9], lambda k: k),
    "reversed": (lambda a: a[::-1], lambda k: k),
    "reshaped": (lambda a: a.reshape(1, -1), lambda k: k),
    "base": (lambda a: a.base, lambda k: k if isinstance(k, np.ndarray) else None),
    "strided": (np.lib.stride_tricks.as_strided, lambda k: k),
    "broadcast": (lambda a: np.broadcast_to(a, (2, a.size)), lambda k: k),
    "memoryview": (memoryview, lambda k: np.asarray(k)),
    "part of a memoryview": (lambda a: memoryview(a)[2:], lambda k: np.asarray(k)),
    "buffer": (lambda a: np.frombuffer(a, np.float32) if a.flags.c_contiguous else a, lambda k: k),
    "capsule": (
        lambda a: a.__dlpack__() if a.flags.carray else a,
        lambda k: dlpack.view_of_capsule(k) if dlpack.is_capsule(k) else k,
    ),
    "dlpack": (lambda a: np.from_dlpack(a) if a.flags.writeable else a, lambda k: k),
    "tensor": (lambda a: Tensor("X", a), lambda k: k.as_numpy()),
    "tensor of dlpack": (
        lambda a: Tensor.from_dlpack("X", a) if a.flags.carray else Tensor("X", a),
        lambda k: k.as_numpy(),
    ),
    "weak reference": (weakref.ref, lambda k: k()),
    "weak set": (lambda a: weakref.WeakSet([Node(a)]), lambda k: next((n.array for n in k), None)),
    "weak reference to a view": (lambda a: weakref.ref(a[:]), lambda k: k()),
    "garbage": (lambda a: weakref.ref(Node(a)), _node),
    "ctypes": (
        lambda a: np.ctypeslib.as_ctypes(a) if a.flags.carray else a,
        lambda k: np.ctypeslib.as_array(k) if isinstance(k, ctypes.Array) else k,
    ),
    "ctypes pointer": (
        lambda a: (np.ascontiguousarray(a).ctypes.data_as(ctypes.POINTER(ctypes.c_float)), a.size),
        lambda k: np.ctypeslib.as_array(k[0], (k[1],)),
    ),
    "generator": (_suspended, next),
    "frame": (_frame, _frames_array),
    "flat": (lambda a: a.view(np.ndarray).flat, lambda k: k.base),
    "iterator": (np.nditer, lambda k: k.operands[0]),
    "method": (lambda a: a.sum, lambda k: k.__self__),
    "exception": (ValueError, lambda k: k.args[0]),
    "object array": (_in_objects, lambda k: k[0]),
}

if importlib.util.find_spec("torch"):  # imported by the tests that use it, because that takes seconds
    HOLDERS["torch"] = (
        lambda a: importlib.import_module("torch").from_numpy(a) if a.flags.writeable else a,
        lambda k: k if isinstance(k, np.ndarray) else k.numpy(),
    )
    MAKERS["torch"] = lambda n: (t := importlib.import_module("torch")).arange(n, dtype=t.float32).numpy()
