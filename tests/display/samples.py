"""Records for the tests of displays: ordinary ones, and records full of hostile text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bls_notebook.checking.records import Finding, Findings, SharedMemory
from bls_notebook.inspection.records import ConfigSetting, InstanceNow, KeptMemory, ModelView, ResponseView, TensorView
from bls_notebook.network.records import ConnectionRecord, EndpointModel, EndpointRecord
from bls_notebook.records.devices import DeviceRecord, DeviceTable
from bls_notebook.records.errors import ErrorRecord, FrameRecord, InputSeen
from bls_notebook.records.metrics import BucketSeen, FamilyRecord, MetricRecord
from bls_notebook.records.repository import (
    Change,
    Compared,
    Figures,
    Media,
    MessageRecord,
    ModelRecord,
    ResponseRecord,
    StreamRecord,
    TensorRecord,
    TensorsCompared,
    TensorSpecRecord,
    TextSeen,
)
from bls_notebook.records.statistics import BatchSeen, StatisticsRecord, Times
from bls_notebook.shipping.records import (
    Certificate,
    Exported,
    ExportedModel,
    Package,
    ServedModel,
    ServerRecord,
    Unequal,
)
from bls_notebook.testing.claim_checks import Judgement
from bls_notebook.testing.records import (
    CodePlace,
    Drilled,
    DrilledCase,
    Planted,
    Recorded,
    Replay,
    RequestKept,
    Resent,
    ResponseKept,
    TensorKept,
)
from bls_notebook.trying.records import Tried, TriedModel

HOSTILE = (
    "</style></pre></td><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;' onload=\"x\n"
    "second $x^2$ line\x1b[31m\x00\u202egnp\u2066\ud800"
)


def model(**changes: Any) -> ModelRecord:
    given: dict[str, Any] = {
        "name": "digit_classifier", "version": 1, "backend": "python", "source": "cell",
        "load_seconds": 0.0032, "max_batch_size": 32, "instances": 2, "instance_kind": "KIND_CPU",
        "inputs": (TensorSpecRecord("IMAGE", "FP32", (64,)), TensorSpecRecord("SCALE", "FP32", (-1,), True)),
        "outputs": (TensorSpecRecord("DIGIT", "INT64", (1,)),),
    }  # fmt: skip
    return ModelRecord(**{**given, **changes})


DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2aQAAAABJRU5ErkJggg=="
FIGURES = Figures(-2, 9.5, 0.25, 3, 1, 16, (1, 0, 5, 2))


def seen(said: str = "0 to 255 as they are") -> TensorRecord:
    return tensor(figures=FIGURES, pictures=(Media("image/png", DOT, 8, 16, said),) * 2)


def tensor_view(said: str = "at 16,000 samples a second", **changes: Any) -> TensorView:
    """An inspected tensor with every optional field."""
    given: dict[str, Any] = {
        "tensor": replace(seen(), device="gpu:0 (simulated)", datatype="FP32", shape=(40,)), "whole": (2, 40),
        "index": "[0]", "sound": Media("audio/wav", "UklGRg==", 16000, 1, said),
        "line": ((-1.0, 2.0), (0.0, 0.0)),
        "texts": (
            TextSeen((0,), "JSON", 9, '{\n  "a": 1\n}'),
            TextSeen((1,), "PNG", 9, "", Media("image/png", DOT)),
        ),
        "values": "\n".join(["[1. 2.]"] * 4), "notes": ("values of [:8]",),
    }  # fmt: skip
    return TensorView(**{**given, **changes})


def model_view(**changes: Any) -> ModelView:
    """An inspected model with every optional field."""
    given: dict[str, Any] = {
        "model": model(),
        "instances": (
            InstanceNow("m_0", state="busy", seconds=0.5, sender="notebook", waits=("callee",)),
            InstanceNow("m_1", "gpu:0 (simulated)"), InstanceNow("m_2", state="passive"),
        ),
        "queued": 2, "statistics": statistics(),
        "held": (KeptMemory("m.weights", 1024, "float32 [256]", "gpu:0"),),
        "held_bytes": 2048, "error": error(), "calls": ("callee",), "callers": ("a", "b"),
        "settings": (
            ConfigSetting("name", '"m"', "Triton"), ConfigSetting("max_batch_size", "8", "author"),
            ConfigSetting("input[IN].dims", "[1]", "model"), ConfigSetting("platform", '""', "default"),
        ),
        "file": "model.py", "source": 'import os\n\n@wraps\ndef f():\n    return "a", 1, None  # why\n',
    }  # fmt: skip
    return ModelView(**{**given, **changes})


def compared() -> Compared:
    """Two responses of which one tensor differs, one does not, and one cannot be compared."""
    picture = Media("image/png", DOT, 8, 16, "0 black, 2 white")
    pair = tensor(), tensor()
    return Compared("first: a", "second: b", (
        TensorsCompared("X", *pair, "", 10, 2, 0.5, 0.25, 3.0, (1, 2), ("1.0", "1.5"), (picture,) * 3),
        TensorsCompared("T", *pair, "", 10, 1, where=(3,), values=('"a"', '"b"')),
        TensorsCompared("S", *pair, "", 10), TensorsCompared("N", tensor(), None, "only in the first"),
    ))  # fmt: skip


def tensor(value: int = 7, **changes: Any) -> TensorRecord:
    given: dict[str, Any] = {
        "name": "OUT", "datatype": "INT32", "shape": (1,), "bytes": 4, "preview": f"[{value}]",
    }  # fmt: skip
    return TensorRecord(**{**given, **changes})


def response(index: int = 0, **changes: Any) -> ResponseRecord:
    given: dict[str, Any] = {
        "model": "square", "version": 3, "tensors": (tensor(index),), "seconds": 0.001 * (index + 1),
        "index": index,
    }  # fmt: skip
    return ResponseRecord(**{**given, **changes})


def error(**changes: Any) -> ErrorRecord:
    own = FrameRecord(
        "callee", 2, "cell callee", 9, "execute",
        ((8, "    def execute(self, requests):"), (9, "        raise ValueError('no weights')"), (10, "")),
    )  # fmt: skip
    library = FrameRecord("", 0, "numpy/core.py", 153, "matmul", ((153, "    return implement(a, b)"),))
    given: dict[str, Any] = {
        "message": "ValueError: no weights", "code": "INTERNAL", "chain": ("caller", "callee"),
        "kind": "ValueError", "frames": (own, library), "hint": "train it first",
    }  # fmt: skip
    return ErrorRecord(**{**given, **changes})


def statistics(**changes: Any) -> StatisticsRecord:
    given: dict[str, Any] = {
        "name": "digit_classifier", "inferences": 79, "executions": 13, "success": Times(40, 40_000_000),
        "fail": Times(3, 1000), "failures": (("CANCELED", 1), ("BACKEND", 2)), "queue": Times(40, 20_000_000),
        "compute_input": Times(36, 400_000), "compute_infer": Times(36, 18_000_000),
        "compute_output": Times(36, 1_600_000),
        "cache_hit": Times(4, 400_000), "cache_miss": Times(1, 50_000),
        "batches": (BatchSeen(1, 2), BatchSeen(6, 10), BatchSeen(8, 1)), "batching": True, "cached": True,
    }  # fmt: skip
    return StatisticsRecord(**{**given, **changes})


def family(**changes: Any) -> FamilyRecord:
    given: dict[str, Any] = {
        "name": "calls", "help": "How many calls", "kind": "counter",
        "metrics": (MetricRecord((("kind", "a"), ("model", "m")), 1234.0), MetricRecord((), 0.5)),
    }  # fmt: skip
    return FamilyRecord(**{**given, **changes})


def recorded(**changes: Any) -> Recorded:
    x = TensorKept("X", "FP32", (2, 2), 16, "tensors/1.npy", False, "[[1.0, 2.0], [3.0, 4.0]]")
    cut = TensorKept("Y", "FP32", (1024, 1024), 1 << 22, "", True)
    requests = (
        RequestKept(1, "page", inputs=(x,), responses=(ResponseKept((x,), ns=2_000_000),), ns=1000),
        RequestKept(2, "resize", 1, inputs=(x,), responses=(ResponseKept((cut,), ns=900_000),), ns=2000),
        RequestKept(3, "page", inputs=(x,), correlation_id="s", parameters='{"lang": "en"}'),
        RequestKept(4, "none", 3, responses=(ResponseKept(error="Model none - not ready"),)),
        RequestKept(5, "words", responses=(ResponseKept((x,), final=False), ResponseKept((x,)))),
    )
    given: dict[str, Any] = {"name": "run.blsrec", "tensors": "all", "limit": 1 << 20, "requests": requests}
    return Recorded(**{**given, **changes})


def replayed(**changes: Any) -> Replay:
    inputs = (tensor(),)
    requests = (
        Resent(1, "page", ("output 'Y': 1 of 4 elements differ",), compared().tensors, inputs, 2_000_000, 1_900_000),
        Resent(2, "page", then_ns=2_000_000, now_ns=1_900_000),
        Resent(3, "page", then_ns=0, now_ns=1_900_000, error="ValueError: below zero"),
    )
    given: dict[str, Any] = {"recording": "run.blsrec", "place": "here", "requests": requests}
    return Replay(**{**given, **changes})


def tried(**changes: Any) -> Tried:
    models = (
        TriedModel("gone", "", "absent", "there is no folder with this name; called by pipeline", "make `gone`"),
        TriedModel("pipeline", "python", calls=("gone", "resize"), seconds=0.02),
        TriedModel("resize", "tensorrt", "stub", "1/model.plan is missing", "put it there, then `%load`", 0.001),
    )
    given = {
        "folder": "their/models", "models": models, "entries": ("pipeline",),
        "requests": ("%bls pipeline IN=1",), "notes": ("a GPU is simulated",), "seconds": 0.1,
    }  # fmt: skip
    return Tried(**{**given, **changes})


def drilled(**changes: Any) -> Drilled:
    """Return a drill with a case of each worth, and a pair."""
    at = CodePlace("a", "a/1/model.py", 7, "print(error.text)")
    cases = (
        DrilledCase((Planted("b", "error"),), "crash", "the error of 'b' is lost", "m", at, at, 1, 0.1),
        DrilledCase((Planted("b", "raises"),), "crash", "the error of 'b' is lost", "m", at, at, 1, 0.1),
        DrilledCase((Planted("b", "stall"),), "waits", "no time limit", "", None, at, 1, 0.1),
        DrilledCase((Planted("c", "error"),), "clear", "an error that points to 'c'", "m", at, at, 1, 0.1),
        DrilledCase((Planted("c", "nan"),), "unaffected", "the same answer", "", None, None, 1, 0.1),
        DrilledCase((Planted("b", "nan"), Planted("c", "nan")), "rubbish", "NaN", "", None, at, 1, 0.1),
    )
    given = {
        "model": "a", "version": 1, "callees": ("b", "c"), "unreached": ("d",), "cases": cases,
        "notes": ("its answers vary",), "seconds": 0.5, "timeout": 1.0,
    }  # fmt: skip
    return Drilled(**{**given, **changes})


def certificate(**changes: Any) -> Certificate:
    """Return one of two requests, of which one is answered differently."""
    given = {
        "model": "a", "version": 1, "given": 1, "generated": 1, "seed": 7, "here": "bls_notebook 1",
        "server": "tritonserver 2", "seconds": 1.5, "packages": (Package("numpy", "2", "1"),),
        "files": (("1/model.py", "0" * 64),), "here_ns": 1000, "there_ns": 2000,
        "unequal": (Unequal(("OUT differs",), ((tensor(),),), compared().tensors, True, False),),
    }  # fmt: skip
    return Certificate(**{**given, **changes})


def findings(**changes: Any) -> Findings:
    """Return one finding of each severity; what it needs of shared memory is known of one model."""
    found = (
        Finding("error", "callee-missing", "a", "there is no `b`", "It fails.", "Add `b`.", "a/1/model.py", 12),
        Finding("warning", "tensor-undeclared", "a", "OUT is not declared", file="a/config.pbtxt"),
        Finding("note", "field-idle", "c", "nothing"),
    )
    needs = (SharedMemory("a", 2, 1 << 20), SharedMemory("c", 1, 80 << 20, known=False))
    return Findings(**{"models": ("a", "c"), "findings": found, "memory": needs, **changes})


def histogram(**changes: Any) -> FamilyRecord:
    buckets = (BucketSeen("0.5", 1), BucketSeen("10", 4), BucketSeen("+Inf", 0))
    metrics = (MetricRecord((("model", "m"),), 12.5, buckets), MetricRecord((), 0.0, (BucketSeen("+Inf", 0),)))
    return FamilyRecord(**{"name": "seconds", "kind": "histogram", "metrics": metrics, **changes})


def hostile_lists() -> list[Any]:
    """Lists of the records that are only shown so, every text in them hostile."""
    h = HOSTILE
    bad = MetricRecord(((h, h),), 1.0, (BucketSeen(h, 1),))
    figures = statistics(name=h, version=h, failures=((h, 1),))
    return [
        [figures, statistics(name=h, success=Times())],
        [StreamRecord(h, 1, 0, 1, 0.1, 0.2, h), StreamRecord(h, 1, 1, error=ErrorRecord(h), warnings=(h,))],
        [family(name=h, help=h, kind=h, metrics=(bad,)), histogram(name=f"nv_{h}", metrics=(bad, bad))],
    ]


def hostile() -> list[Any]:
    """One of each record, every text in it hostile."""
    h = HOSTILE
    spec = TensorSpecRecord(h, h, (1,), True)
    bad_error = ErrorRecord(h, h, (h, h), h, (FrameRecord(h, 1, h, 2, h, ((1, h), (2, h))),), h)
    bad_error = replace(bad_error, inputs=(InputSeen(h, h, (1,), h),), unchecked=h, debug=True)
    bad_tensor = TensorRecord(h, h, (1,), h, 3, h, FIGURES, (Media(h, h, said=h), Media("image/png", h, said=h)))
    bad_model = ModelRecord(
        h, 1, h, h, h, h, 0.1, instance_kind=h, inputs=(spec,), outputs=(spec,), warnings=(h,),
        changes=(Change(h, 1, 1, ((h, h),)),), stub=h,
    )  # fmt: skip
    good = ResponseRecord(h, 1, h, (bad_tensor,), None, (h,), ((h, h),), 0.1)
    bad = ResponseRecord(h, 1, h, (), bad_error, (h,), ((h, h),), 0.1, stubs=(h, h))
    text = TextSeen((0,), h, 3, h, Media(h, h, said=h))
    view = TensorView(bad_tensor, (2,), h, Media("audio/wav", h, said=h), ((0.0, 1.0),), (text,), h, (h,))
    beside = TensorsCompared(h, bad_tensor, bad_tensor, h, 1, 1, 1.0, 1.0, 1.0, (1,), (h, h), (Media(h, h, said=h),))
    unlike = Compared(h, h, (beside, replace(beside, reason="")), (h,))
    devices = DeviceTable((DeviceRecord(h, h, True, 1, 2, 3, 10), DeviceRecord(h, h)))
    messages = [MessageRecord(h, h, h, 0.1), MessageRecord(h, "error", h), Judgement(h, False, h, h)]
    now = InstanceNow(h, h, "busy", 0.1, h, (h,))
    inside = ModelView(
        bad_model, (now, replace(now, state=h)), 1, None, (KeptMemory(h, 1, h, h),), 2, bad_error, (h,), (h,),
        (ConfigSetting(h, h, h), ConfigSetting(h, h, "default")), h, h,
    )  # fmt: skip
    found = Findings((h,), (Finding(h, h, h, h, h, h, h, 1), Finding("error", h, h, h)), (SharedMemory(h, 1, 1),))
    bad_trial = Tried(h, (TriedModel(h, h, h, h, h, 0.1, (h,)),) * 2, (h,), (h,) * 5, (h,), (h,), 0.1)
    shipped = ExportedModel(h, (1,), h, h, 1, 1, True, (h,), (h,))
    kept = TensorKept(h, h, (1,), 1, h, True, h)
    answers = (ResponseKept((kept,), final=False), ResponseKept((kept,), h, h, h))
    asked = RequestKept(1, h, inputs=(kept,), correlation_id=h, parameters=h, responses=answers)
    bad_at = CodePlace(h, h, 1, h)
    bad_case = DrilledCase((Planted(h, h), Planted(h, h)), "crash", h, h, bad_at, bad_at, 1, 0.1)
    bad_drill = drilled(
        model=h, callees=(h,), unreached=(h,), notes=(h,),
        cases=(
            bad_case,
            replace(bad_case, faults=(Planted(h, h),)),
            replace(bad_case, verdict=h, faults=(Planted(h, "nan"),)),
        ),
    )  # fmt: skip
    views = [
        ConnectionRecord(h, "LOST", h, h, (model(name=h, remote=h, source=h),), ((h, h),), (h,)),
        bad_drill,
        replayed(
            recording=h,
            place=h,
            to=h,
            only=h,
            stubbed=(h,),
            skipped=(h,),
            requests=(Resent(1, h, (h,), (beside,), (bad_tensor,), 1, 1), Resent(2, h, error=h)),
        ),
        replayed(recording=h, place=h, to=h, requests=(Resent(1, h),)),
        recorded(name=h, requests=(asked, replace(asked, id=2, parent=1))),
        ServerRecord("READY", h, h, h, h, h, (ServedModel(h, (1,), h, h, h, (h,)),) * 2, h, (h,), 1.0, (h,)),
        EndpointRecord("READY", h, h, h, (EndpointModel(h, 1, h, h),), 2, bad_error),
        EndpointRecord("CLOSED", h, h, "", (EndpointModel(h, 1, "READY", h),)),
        ServerRecord("ENDED", h, h, h, h, h, (ServedModel(h),), h, (h,), 1.0, (h,)),
        Exported(h, (shipped, shipped), (h,), (h,), 1, h),
        certificate(
            model=h,
            here=h,
            server=h,
            packages=(Package(h, h, h),),
            files=((h, h),),
            unequal=(Unequal((h,), ((bad_tensor,),), (beside,)),),
        ),
        bad_trial,
        found,
        inside,
        view,
        ResponseView(good, (view, view)),
        ResponseView(bad),
        unlike,
    ]
    return [bad_model, good, bad, bad_error, devices, *messages, *views]
