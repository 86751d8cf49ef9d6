"""The models of the batching scenarios: what each run of theirs reports, and a config for each scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MODEL = """
import json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils


def value(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().ravel().tolist()[0]


def text(x):
    return x.decode() if isinstance(x, bytes) else x


class TritonPythonModel:
    def initialize(self, args):
        self.config = json.loads(args["model_config"])
        self.controls = [c["name"] for c in self.config.get("sequence_batching", {}).get("control_input", [])]
        self.controls += [s["input_name"] for s in self.config.get("sequence_batching", {}).get("state", [])]
        self.runs = 0

    def execute(self, requests):
        self.runs += 1
        batch = []
        for request in requests:
            entry = [value(request, "LABEL")]
            if self.controls:
                ready = value(request, "READY")
                if not ready:
                    entry = [None, len(request.requested_output_names()), request.flags(),
                             list(pb_utils.get_input_tensor_by_name(request, "LABEL").shape())]
                entry += [text(value(request, c)) for c in self.controls]
            batch.append(entry if self.controls else entry[0])
        for request in requests:
            gate = value(request, "GATE")
            deadline = time.time() + 15
            while gate and (gate[:1] == b"/" or b":" in gate) and not os.path.exists(gate.decode()):
                assert time.time() < deadline
                time.sleep(0.002)
        report = json.dumps([self.runs, batch]).encode()
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("BATCH", np.full((r.inputs()[0].shape()[0], 1), report, np.object_))])
            for r in requests
        ]
"""

ITERATIVE = '''
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Asks to see its request again until it has seen it three times; answers with what it saw."""

    def initialize(self, args):
        self.seen = {}

    def execute(self, requests):
        out = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "LABEL").as_numpy()
            start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy().ravel().tolist()[0]
            seen = self.seen.setdefault(request.correlation_id(), [])
            seen.append([int(tensor.ravel()[0]), start, request.flags()])
            tensor += 100
            if len(seen) < 3:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                out.append(None)
            else:
                report = str(self.seen.pop(request.correlation_id())).encode()
                out.append(pb_utils.InferenceResponse(
                    [pb_utils.Tensor("BATCH", np.array([[report]], np.object_))]))
        return out
'''

_IO = """
input [ { name: "LABEL" data_type: TYPE_INT32 dims: [ %s ] %s },
        { name: "GATE" data_type: TYPE_STRING dims: [ 1 ] }%s ]
output [ { name: "BATCH" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
_CONTROLS = """
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: %s } ] }
  ]
"""


def _config(
    scheduling: str, rows: int = 8, dims: str = "1", ragged: bool = False, optional: bool = False, count: int = 1
) -> str:
    more = ', { name: "MORE" data_type: TYPE_INT32 dims: [ 1 ] optional: true }' if optional else ""
    return (
        f'backend: "python"\nmax_batch_size: {rows}\n{scheduling}\n'
        + _IO % (dims, "allow_ragged_batch: true" if ragged else "", more)
        + f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]\n"
    )


def _sequence(strategy: str, corrid: str = "TYPE_UINT64", rows: int = 4, more: str = "", **options: Any) -> str:
    body = f"max_sequence_idle_microseconds: 10000000\n{strategy}{_CONTROLS % corrid}{more}"
    return _config(f"sequence_batching {{ {body} }}", rows, **options)


_ITERATIVE_CONFIG = _config(
    """sequence_batching { iterative_sequence: true control_input [
      { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }""",
    2,
)
_POLICY = "dynamic_batching {{ default_queue_policy {{ {} }} }}".format

CONFIGS = {
    "preferred": _config("dynamic_batching { preferred_batch_size: [ 2, 4 ] }"),
    "preferred_three": _config("dynamic_batching { preferred_batch_size: [ 3 ] }"),
    "preferred_delay": _config(
        "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 400000 }"
    ),
    "plain": _config("dynamic_batching { }"),
    "variable": _config("dynamic_batching { }", dims="-1"),
    "ragged": _config("dynamic_batching { }", dims="-1", ragged=True),
    "optional": _config("dynamic_batching { }", optional=True),
    "unbatched": _config("dynamic_batching { }", 0).replace("preferred", ""),
    "priorities": _config("dynamic_batching { priority_levels: 3 default_priority_level: 2 }", 2),
    "level_policies": _config(
        """dynamic_batching { priority_levels: 2 default_priority_level: 2
        priority_queue_policy { key: 1 value { max_queue_size: 1 } } }""", 1),
    "small_queue": _config(_POLICY("max_queue_size: 2")),
    "no_timeout_of_its_own": _config(_POLICY("allow_timeout_override: true")),
    "rejects": _config(_POLICY("default_timeout_microseconds: 8000000 allow_timeout_override: true")),
    "delays": _config(_POLICY("timeout_action: DELAY default_timeout_microseconds: 8000000 "
                              "allow_timeout_override: true"), 2),
    "ordered": _config("dynamic_batching { preserve_ordering: true }", 1, count=2),
    "unordered": _config("dynamic_batching { }", 1, count=2),
    "direct": _sequence("direct { }"),
    "direct_variable": _sequence("direct { }", dims="-1"),
    "direct_text": _sequence("direct { }", "TYPE_STRING", rows=0),
    "direct_int32": _sequence("direct { }", "TYPE_INT32"),
    "direct_utilization": _sequence(
        "direct { minimum_slot_utilization: 0.5 max_queue_delay_microseconds: 600000 }"
    ),
    "direct_one_slot": _sequence("direct { }", rows=1),
    "direct_state": _sequence("direct { }", more="""
      state [ { input_name: "STATE" output_name: "NEXT" data_type: TYPE_INT32 dims: [ 1 ]
                initial_state: { name: "zero" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } ]"""),
    "oldest": _sequence("oldest { max_candidate_sequences: 4 }"),
    "oldest_two": _sequence("oldest { max_candidate_sequences: 2 preferred_batch_size: [ 2 ] }"),
    "iterative": _ITERATIVE_CONFIG,
}  # fmt: skip


def write_models(folder: Path) -> None:
    for name, config in CONFIGS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
        (folder / name / "1" / "model.py").write_text(ITERATIVE if name == "iterative" else MODEL)
