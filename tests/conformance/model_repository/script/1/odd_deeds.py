"""Deeds with odd values: parameters, metrics, names of models, and what a `ModelConfig` refuses."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils
from deeds import TWO, _attempt, _call, _report


def parameters_of_odd_values(request):
    odd = {
        "float": 1.5, "none": None, "list": [1], "dict": {}, "bytes": b"x", "numpy": np.int64(3),
        "key": {1: 1}, "most": 2**63 - 1, "least": -(2**63), "more": 2**63, "unsigned": 2**64 - 1,
        "less": -(2**63) - 1, "empty": "", "line": "a\n\u20ac", "bool": True,
    }  # fmt: skip
    got = {}
    for name, value in odd.items():
        parameters = value if name == "key" else {"a": value}
        got[name] = _attempt(_call, "add_sub", TWO, ["OUTPUT0"], parameters=parameters)
    return _report(got)


FAMILIES = []  # a family that goes takes its metrics with it


def _family(kind, name=None):
    made = pb_utils.MetricFamily(
        name=name or f"deeds_{kind.lower()}_{len(FAMILIES)}", description="d", kind=getattr(pb_utils.MetricFamily, kind)
    )
    FAMILIES.append(made)
    return made


def _metric(kind, *arguments):
    metric = _family(kind).Metric(*arguments)
    if kind == "HISTOGRAM":
        for value in (1, 2.5, 7):
            metric.observe(value)
    return "made"


# Of labels, names and buckets that it refuses itself the server dies in some runs.


def buckets_of_metrics(request):
    inf, nan = float("inf"), float("nan")
    some = [[], [1, 2], [1.5], [1, inf], [nan], [1, nan], [-inf, 1], None, (1, 2), [True, 2]]
    got = [_attempt(_metric, "HISTOGRAM", {"a": "b"}, buckets) for buckets in some]
    got += [_attempt(_metric, kind, {}, buckets) for kind in ("GAUGE", "COUNTER") for buckets in ([], [1.0], None)]
    return _report(got)


def labels_of_metrics(request):
    some = [{}, None, [], {"a": ""}, {"a": "\u00e9\n"}, {"le": "x"}, {"quantile": "x"}, {"a": b"x"}]
    got = [_attempt(_metric, "GAUGE", labels) for labels in some]
    return _report(got)


def unloading_what_cannot_be_there(request):
    names = ["", ".", "..", "../x", "a/b", "a\nb", "a\0b", " ", "x" * 1000, "a;b"]
    return _report([_attempt(pb_utils.unload_model, model_name=name) for name in names])


def asking_after_what_cannot_be_there(request):
    names = ["", "..", "../x", "a/b", "a\nb", " ", "x" * 1000, "a;b"]
    return _report([_attempt(pb_utils.is_model_ready, model_name=name) for name in names])


CONFIG = {
    "name": "m",
    "max_batch_size": 4,
    "input": [
        {"name": "A", "data_type": "TYPE_FP32", "dims": [2], "optional": True},
        {"name": "B", "data_type": "TYPE_INVALID", "dims": []},
    ],
    "output": [{"name": "O", "data_type": "TYPE_FP32", "dims": [2]}],
}


def what_model_config_refuses(request):
    """Each call on a configuration of its own: what it says, and what is in it afterwards."""
    got = []

    def call(method, *arguments, **more):
        config = pb_utils.ModelConfig(json.dumps({**CONFIG, **more}))
        said = _attempt(getattr(config, method), *arguments)
        got.append([said, config.as_dict()])

    for size in (2, 4, 8):
        call("set_max_batch_size", size)
    call("set_dynamic_batching")
    call("set_dynamic_batching", dynamic_batching={"preferred_batch_size": [2]})
    call("set_dynamic_batching", sequence_batching={})
    call("set_dynamic_batching", ensemble_scheduling={})
    whole = {"name": "N", "data_type": "TYPE_INT8", "dims": [1]}
    for method in ("add_input", "add_output"):
        call(method, whole)
        call(method, {**whole, "optional": False})
        call(method, {**whole, "shape": [1]})
        call(method, {"shape": [1]})
        for missing in whole:
            call(method, {key: value for key, value in whole.items() if key != missing})
        for name in ("A", "B", "O"):
            call(method, {**whole, "name": name})
            call(method, {"name": name, "data_type": "TYPE_FP32", "dims": [3]})
            call(method, {"name": name, "data_type": "TYPE_FP32", "dims": [2]})
            call(method, {"name": name, "data_type": "TYPE_FP32", "dims": [2], "optional": False})
        call(method, {})
    decoupled = {"model_transaction_policy": {"decoupled": False}}
    for policy in ({"decoupled": True}, {"decoupled": False}, {}, {"coupled": True}, {"decoupled": 1, "more": 2}):
        call("set_model_transaction_policy", policy)
        call("set_model_transaction_policy", policy, **decoupled)
    return _report(got)
