"""Random tensors and random configurations, on both sides."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bls_notebook.repository.config import to_json
from bls_notebook.shipping.servers.tritonserver import TritonRequestError
from tests.conformance.conftest import SAME_TIME
from tests.conformance.sides import Sides, without_newer

pytestmark = pytest.mark.triton
Array = np.ndarray[Any, Any]
Case = tuple[dict[str, Any], list[dict[str, Array]]]  # a configuration, and inputs of some requests
DTYPES = {
    "BOOL": np.bool_,
    **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "STRING": np.dtype(object),
}
ELEMENTS = st.one_of(
    st.binary(max_size=6),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.sampled_from([b"a\0b", "\0", "é\0", b"\xff", "end\0"]),
)
VIEWS = ("as it is", "backwards", "every second", "axes swapped", "Fortran order", "stretched")


@st.composite
def arrays(draw: st.DrawFn, kind: str, shape: tuple[int, ...]) -> Array:
    """An array of that shape, at times not contiguous."""
    dtype = np.dtype(DTYPES[kind])
    view = draw(st.sampled_from(VIEWS))
    made = shape[::-1] if view == "axes swapped" else shape
    if view == "every second":
        made = tuple(2 * length for length in shape)
    if kind == "STRING":
        size = int(np.prod(made))
        flat = np.empty(size, np.object_)
        flat[:] = draw(st.lists(ELEMENTS, min_size=size, max_size=size))
        array: Array = flat.reshape(made)
    else:
        array = draw(hnp.arrays(dtype, made))
    if not shape:  # a view of it would be a number
        return array
    if view == "backwards":
        return array[tuple(slice(None, None, -1) for _ in shape)]
    if view == "every second":
        return array[tuple(slice(None, None, 2) for _ in shape)]
    if view == "axes swapped":
        return array.T
    if view == "Fortran order":
        return np.asfortranarray(array)
    if view == "stretched" and array.size:
        return np.broadcast_to(array[:1], shape)
    return array


SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Array]:
    """Inputs of `identity`; now and then one whose rank or dtype is not that of its name."""
    inputs = {}
    for kind in draw(st.lists(st.sampled_from(sorted(DTYPES)), min_size=1, max_size=4, unique=True)):
        # which of several errors is told depends on the order of a hash table: at most one is wrong
        shape = draw(SHAPES if not inputs else SHAPES.filter(len))
        rank = len(shape) or draw(st.integers(1, 4))
        inputs[f"{kind}_{rank}"] = draw(arrays(kind, shape))
    return inputs


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(inputs=requests())
def test_tensors(sides: Sides, inputs: dict[str, Array]) -> None:
    answer = sides.same("identity", inputs)
    assert (answer.error is None) == all(array.ndim for array in inputs.values())


def reshapes(dims: list[int], batch: int) -> st.SearchStrategy[list[int]]:
    """Shapes of as many elements, and at times one of more."""
    fixed = [size for size in dims if size != -1]
    merged = [*(size for size in dims if size == -1), int(np.prod(fixed))]
    choices = [[1, *dims], [*dims, 1], merged if -1 not in dims else [*dims], [*dims, 2]]
    if batch and dims == [1]:
        choices.append([])
    return st.sampled_from(choices)


LOADS = itertools.count()


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A configuration of `recast`, mostly one that a server takes."""
    kinds = sorted(DTYPES)
    batch = draw(st.sampled_from([0, 0, 1, 3]))
    config: dict[str, Any] = {"backend": "python", "max_batch_size": batch, "input": [], "output": []}
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        dims = draw(st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=1, max_size=3))
        tensor: dict[str, Any] = {"data_type": f"TYPE_{kind}", "dims": dims}
        optional = {"optional": True} if draw(st.booleans()) else {}
        if draw(st.booleans()):
            tensor["reshape"] = {"shape": draw(reshapes(dims, batch))}
        config["input"].append({"name": f"IN{number}", **tensor, **optional})
        config["output"].append({"name": f"OUT{number}", **tensor})
    config["output"].append({"name": "ARGS", "data_type": "TYPE_STRING", "dims": [1]})
    if batch and draw(st.booleans()):
        delay = draw(st.sampled_from([0, 500]))
        config["dynamic_batching"] = {"max_queue_delay_microseconds": delay}
        if draw(st.booleans()):
            sizes = sorted(draw(st.sets(st.integers(1, batch + 1), min_size=1, max_size=2)))
            config["dynamic_batching"]["preferred_batch_size"] = sizes
    if draw(st.booleans()):
        group: dict[str, Any] = {"kind": "KIND_CPU", "count": draw(st.integers(1, 2))}
        if draw(st.booleans()):  # off by default, on both sides: carried along and otherwise without effect
            resource = {"name": "R", "count": draw(st.integers(1, 3)), "global": draw(st.booleans())}
            group["rate_limiter"] = {"resources": [resource], "priority": draw(st.integers(0, 2))}
        config["instance_group"] = [group]
    if draw(st.booleans()):
        config["parameters"] = {
            draw(st.sampled_from(["a", "b c"])): {"string_value": draw(st.text('aé"\\', max_size=3))}
        }
    if draw(st.booleans()):
        policy = draw(st.sampled_from([{"latest": {"num_versions": 2}}, {"all": {}}, {"specific": {"versions": [1]}}]))
        config["version_policy"] = policy
    return config


@st.composite
def requests_of(draw: st.DrawFn, config: dict[str, Any]) -> dict[str, Array]:
    """Inputs for a configuration; now and then of a shape that it does not take."""
    least = int(len(config["input"]) > 1)  # of two inputs of no rows either may be told
    limit = config["max_batch_size"]
    batch = [draw(st.integers(least, limit + 1))] if limit else []
    inputs = {}
    for tensor in config["input"]:
        if tensor.get("optional") and draw(st.booleans()):
            continue
        # a dimension that is too large by one is refused, unless any is right
        dims = [length if length > 0 else draw(st.integers(1, 3)) for length in tensor["dims"]]
        dims[0] += draw(st.sampled_from([0, 0, 0, 1]))
        inputs[tensor["name"]] = draw(arrays(tensor["data_type"][5:], (*batch, *dims)))
    return inputs


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A configuration and some requests: all that is drawn, before anything is loaded for it."""
    config = draw(configs())
    return config, [draw(requests_of(config)) for _ in range(3)]


# What fails is told as it was found: to make it smaller would take minutes.
@pytest.mark.extra
@settings(
    max_examples=2,  # of four models each, and others in every run
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(drawn=st.tuples(*(cases() for _ in SAME_TIME)))
def test_configurations(sides: Sides, drawn: tuple[tuple[dict[str, Any], list[dict[str, Array]]], ...]) -> None:
    """Some at a time: a server waits for the process of each model longer than all else takes."""
    for attempt in range(3):
        for config, _ in drawn:
            # Never the configuration of before but for what a server changes without loading: then it
            # keeps the rest.
            config.setdefault("parameters", {})["load"] = {"string_value": str(next(LOADS))}
        by_name = dict(zip(SAME_TIME, drawn, strict=True))
        refused = sides.same_loads({name: config for name, (config, _) in by_name.items()})
        server = sides.real.pid
        try:
            for name, (_, asked) in by_name.items():
                if refused[name] is None:
                    same_answers(sides, name, asked)
            return
        except (AssertionError, TritonRequestError):
            if sides.real.pid == server or attempt == 2:  # else one that does not have these models any more
                raise


def same_answers(sides: Sides, name: str, asked: list[dict[str, Array]]) -> None:
    assert json.loads(to_json(sides.here.config(name))) == sides.on_real(lambda: sides.real.config(name))
    for inputs in asked:
        answers = [ask(name, inputs) for ask in (sides.ask_here, sides.ask_real)]
        told = [answer.outputs.pop("ARGS") for answer in answers if answer.error is None]
        got, wanted = (answer.as_text() for answer in answers)
        assert got == wanted, f"\nhere {got}\nreal {wanted}"
        same_initialize(told)


def same_initialize(told: list[Array]) -> None:
    """What `initialize` was given, but for where the model lies and which instance answered."""
    arguments = [json.loads(each[0]) for each in told]
    for each in arguments:
        each["model_config"] = without_newer(json.loads(each["model_config"]))
        for of_the_instance in ("model_repository", "model_instance_name"):
            del each[of_the_instance]
    assert arguments[1:] == arguments[:1] * len(arguments[1:])
