"""Records for the tests of displays: ordinary ones, and records full of hostile text."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from bls_notebook.checking.records import Finding, Findings, SharedMemory
from bls_notebook.course.case_display import CaseScore, CaseScores
from bls_notebook.course.case_entry import CaseCheck, case
from bls_notebook.course.class_grades import ClassGrades, LearnerGrade
from bls_notebook.course.puzzle_check import PuzzleCheck
from bls_notebook.course.puzzle_entry import puzzle
from bls_notebook.data_sets.records import FailedRow, MapRecord, PartRecord
from bls_notebook.inspection.records import (
    Compared,
    ConfigSetting,
    InstanceNow,
    KeptMemory,
    ModelView,
    ProcessNow,
    ResponseView,
    TensorsCompared,
    TensorView,
)
from bls_notebook.network.records import ConnectionRecord, EndpointModel, EndpointRecord
from bls_notebook.profiling.records.before_after import BeforeAfter, TimeChange
from bls_notebook.profiling.records.line_times import LineTime, ModelLines
from bls_notebook.records.environments import EnvironmentRecord
from bls_notebook.records.errors import ErrorRecord, FrameRecord, InputSeen
from bls_notebook.records.measurements import Quartiles
from bls_notebook.records.messages import MessageRecord
from bls_notebook.records.models import Change, ModelRecord, TensorSpecRecord
from bls_notebook.records.responses import Figures, Media, ResponseRecord, StreamRecord, TensorRecord, TextSeen
from bls_notebook.records.statistics import (
    BatchSeen,
    BucketSeen,
    DeviceRecord,
    DeviceTable,
    FamilyRecord,
    MetricRecord,
    StatisticsRecord,
    Times,
)
from bls_notebook.shipping.records import (
    Certificate,
    ChangedModel,
    Changes,
    Exported,
    ExportedModel,
    Package,
    ServedModel,
    ServerRecord,
    Unequal,
)
from bls_notebook.sweeps.records import Growth, ModelLoad, Percentiles, ResourceSample, Sweep, SweepPoint
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
from bls_notebook.trying.records import TrialReport, TriedModel

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
        "processes": (ProcessNow("m_0", 4711, 85 << 20), ProcessNow("m_1", 4712, 0, False)),
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


def tried(**changes: Any) -> TrialReport:
    models = (
        TriedModel("gone", "", "absent", "there is no folder with this name; called by pipeline", "make `gone`"),
        TriedModel("pipeline", "python", calls=("gone", "resize"), seconds=0.02),
        TriedModel("resize", "tensorrt", "stub", "1/model.plan is missing", "put it there, then `%load`", 0.001),
    )
    given = {
        "folder": "their/models", "models": models, "entries": ("pipeline",),
        "requests": ("%bls pipeline IN=1",), "notes": ("a GPU is simulated",), "seconds": 0.1,
    }  # fmt: skip
    return TrialReport(**{**given, **changes})


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


def environment(**more: Any) -> EnvironmentRecord:
    made = EnvironmentRecord("e1", "/cache/e1", "3.10", ("numpy==1.26.4",), ("numpy<2",), 10**8, ("m",))
    return replace(made, **more)


def swept(**changes: Any) -> Sweep:
    instances = (("resize", 2),)
    models = (ModelLoad("a", 9, 0.1, 0.2), ModelLoad("b", 9, 0.1, 0.2, Percentiles(9, 0.1)))
    points = (
        SweepPoint(instances, 1, 4, seconds=2.0, latency=Percentiles(200, 0.01, 0.02, 0.03), models=models),
        SweepPoint(instances, 8, 0, 20.0, 2.0, Percentiles(40, 0.02, 0.06), (("<b>no</b>", 3),), models=models),
        SweepPoint(instances, 8, 0, 90.0, 2.0, problem="overloaded", grown=(Growth("memory", 9e6, 2.0),)),
    )
    samples = tuple(ResourceSample(at / 4, 1000 * at, at, 9) for at in range(9))
    return replace(Sweep("page", "kernel", points, 0.05, samples=samples, planned=4), **changes)


def everything() -> list[Any]:
    """Each kind of record that has a display, except recordings of time and memory, with its variants."""
    made: list[Any] = [
        model(warnings=("w",), state="LOADING"), response(error=error(message="m\n" * 20)), error(),
        model(changes=(Change("model.py", 1, 1, (("-", "a"), ("+", "b"), ("…", ""))),)), model(stub="s"),
        response(tensors=(tensor(device="gpu:0 (simulated)"),), parameters=(("a", 1),)), response(tensors=()),
        response(tensors=(seen(), tensor())), response(stubs=("resize",), warnings=("w",), request_id="r"),
        error(inputs=(InputSeen("A", "INT32", (2,), "gpu:0"),), unchecked="B", debug=True),
        tensor_view(), ResponseView(response(), (tensor_view(),) * 2), compared(), model_view(),
        *(MessageRecord("t", kind, "h", 0.1) for kind in ("done", "info", "warning", "error")),
        recorded(), recorded(dropped=3), replayed(), replayed(only="page", stubbed=("a",), skipped=("b",), to="t"),
        MapRecord(
            "m", ("OUT",), 9, 12, 1.0, (PartRecord(0, 0, 4), PartRecord(1, 4, 5, "kernel", 0.1, 0.2, 1)),
            (FailedRow(5, "<b>no</b>"),), 1, "answers", True, 2, ("row 1: output 'OUT': 1 of 1 elements differ",),
        ),
        swept(), swept(budget=0.0, samples=(), place="server", address="grpc://a:1"),
        environment(),
        findings(), tried(), tried(left=("b", "c"), models=()),
        tried(models=(TriedModel("a"),) * 12 + tried().models), tried(requests=("%bls a",) * 5),
        certificate(), certificate(unequal=(), generated=0), drilled(),
        Exported("ship", (ExportedModel("a", (1,), "b", "c", 1, 1, ("d",), ("e",)),), ("b",), (("a",) * 4,), 1),
        *(
            Changes((ChangedModel("a", "f", (Change("1/model.py", 1, 0, (("+", "x"),)),), ("n",)),), 3, done)
            for done in (True, False)
        ),
        ConnectionRecord("a", "CONNECTED", "t"),
        ConnectionRecord("a", "LOST", "t", "r", (model(remote="a"),), (("a", "b"),)),
        *(
            EndpointRecord(s, "h", "g", "t" * (s == "READY"), (EndpointModel("a", 1, s, "r"),), 2, ErrorRecord("m"))
            for s in ("READY", "CLOSED")
        ),
        *(
            ServerRecord(s, *"pvhgm", (ServedModel("a", (1,), s, "r", "b", ("c",)),), "f", ("l",), 1.0, ("n",))
            for s in ("READY", "ENDED")
        ),
        DeviceTable((DeviceRecord("gpu:0", "h", True, 100, 20, 3, 1), DeviceRecord("cpu", "h"))),
        Judgement("called a", False, "nothing", "Call it."),
        case(1), CaseCheck(1, "t", 0, (Judgement("waits <= 1", False, "s", "h"),)), CaseCheck(1, "t", 0, ()),
        ClassGrades("<p>", 3, ("same answers", "waits <= 1 of <p>"), (LearnerGrade("<b>", (True, False), "<i> `x`"),)),
        CaseScores((CaseScore(1, "t", 0, 2, True, True), CaseScore(2, "u"))),
        puzzle("gather"), ModelLines("m", 1, 2, 9_000_000, 12, 0.1, (LineTime("a.py", 3, "f", "g()", 1, 1, 1, 9, 12),)),
        ModelLines("m", 1, 2, 9_000_000, 3, 0.0, ()),
        BeforeAfter("a", "b", "s", (TimeChange("line", "m", "new", after=Quartiles(1, 2, 2, 2), text="f()"),), ("n",)),
        BeforeAfter("a", "b", "s", (TimeChange("model", "m", "faster", *[Quartiles(9, 5, 4, 6)] * 2, 0.1),)),
        PuzzleCheck("p", "t", 0, (Judgement("waits <= 1", False, "s", "h"),), (), (), "v", "r", "g", "e"),
    ]  # fmt: skip
    return made


def lists() -> list[list[Any]]:
    """Lists of records that are shown as one table."""
    return [
        [model(), model(state="UNAVAILABLE", reason="r" * 80)],
        [response(i, warnings=("w",)) for i in range(40)], [response(0, tensors=(), error=error())],
        [statistics(), statistics(success=Times(), fail=Times())],
        [StreamRecord("m", 1, i, 2, 0.1, 0.2, "text") for i in range(30)], [StreamRecord("m", error=error())],
        [family(), histogram(), family(name="nv_own")], [family(metrics=(MetricRecord(),) * 60)],
        [environment(), environment(users=())],
    ]  # fmt: skip


# Fields whose values choose a part of a display, each once with their value and once hostile.
CHOOSING = frozenset({"state", "kind", "severity", "verdict", "fault", "stage"})


def hostile(value: Any, kept: frozenset[str] = CHOOSING) -> Any:
    """Return a record with hostile text in place of every text, except in the fields `kept`."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, tuple | list):
        return type(value)(hostile(each, kept) for each in value)
    if is_dataclass(value):
        texts = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        return type(value)(**{name: each if name in kept else hostile(each, kept) for name, each in texts.items()})
    return value
