"""Custom metrics: values, what is refused, and the text that Prometheus reads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import bls_notebook as bls
from bls_notebook.engine.metrics import Metrics
from bls_notebook.pb_utils import MetricFamily, TritonModelException

KINDS = {"counter": MetricFamily.COUNTER, "gauge": MetricFamily.GAUGE, "histogram": MetricFamily.HISTOGRAM}


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus reads; labels that are empty are labels that are not there."""
    return {
        (s.name, tuple(sorted((k, v) for k, v in s.labels.items() if v))): s.value
        for family in text_string_to_metric_families(metrics.text())
        for s in family.samples
        if not family.name.startswith("nv_")  # the server's own are not the models'
    }


@pytest.fixture(autouse=True)
def families() -> Iterator[list[MetricFamily]]:
    """Keeps families, as a model must: what is dropped takes its metrics with it."""
    yield KEPT
    KEPT.clear()


KEPT: list[MetricFamily] = []


def family(name: str, kind: str | Any = MetricFamily.COUNTER, description: str = "d") -> MetricFamily:
    made = MetricFamily(name, description, KINDS[kind] if isinstance(kind, str) else kind)
    KEPT.append(made)
    return made


def test_a_counter(repo: bls.ModelRepository) -> None:
    def body() -> float:
        metric = family("requests_total").Metric({"model": "m"})
        metric.increment(2)
        metric.increment(0.5)
        metric.increment(0)
        return metric.value()

    assert repo.run(body) == 2.5
    assert samples(repo.metrics) == {("requests_total", (("model", "m"),)): 2.5}
    repo.run(lambda: family("hits").Metric().increment(1))  # which keeps its name
    assert "hits 1.0" in repo.metrics.text().splitlines()


def test_a_gauge(repo: bls.ModelRepository) -> None:
    def body() -> float:
        KEPT.append(MetricFamily(name="depth", description="of it", kind=MetricFamily.GAUGE))
        metric = KEPT[-1].Metric()
        metric.set(-4)
        metric.increment(1.5)
        metric.increment(-1)
        return metric.value()

    assert (repo.run(body), samples(repo.metrics)) == (-3.5, {("depth", ()): -3.5})


def test_a_histogram(repo: bls.ModelRepository) -> None:
    def body() -> None:
        metric = family("seconds", "histogram").Metric({"a": "b"}, [0.1, 1, 10.0])
        for value in (0.05, 0.1, 0.2, 10, 11, 1e9):
            metric.observe(value)

    repo.run(body)
    read = samples(repo.metrics)
    buckets = {dict(labels)["le"]: v for (name, labels), v in read.items() if name == "seconds_bucket"}
    assert {float(le): v for le, v in buckets.items()} == {0.1: 2, 1.0: 3, 10.0: 4, float("inf"): 6}
    assert read["seconds_count", (("a", "b"),)] == 6
    assert read["seconds_sum", (("a", "b"),)] == pytest.approx(0.05 + 0.1 + 0.2 + 10 + 11 + 1e9)


def test_equal_labels_share_one_value(repo: bls.ModelRepository) -> None:
    def body() -> list[float]:
        first = family("shared", "gauge").Metric({"a": "1", "b": "2"})
        same = family("shared", "gauge", "another text").Metric({"b": "2", "a": "1"})
        other = family("shared", "gauge").Metric({"a": "1"})
        first.set(1)
        same.increment(2)
        other.set(9)
        return [first.value(), same.value(), other.value()]

    assert repo.run(body) == [3, 3, 9]


@pytest.mark.parametrize("name", ["", "a b", "1a", "a-b", "\u00e9", "a\nb", "a{}", "a.b", "a\n", "__m"])
def test_a_bad_name(repo: bls.ModelRepository, name: str) -> None:
    with pytest.raises(
        TritonModelException, match=r"^Error when creating MetricFamily: .*message: Invalid metric name$"
    ):
        repo.run(lambda: MetricFamily(name, "d", MetricFamily.COUNTER))
    assert samples(repo.metrics) == {}


@pytest.mark.parametrize("label", ["", "a b", "1a", "a-b", "__reserved", "\u00e9", "a\n"])
def test_a_bad_label(repo: bls.ModelRepository, label: str) -> None:
    with pytest.raises(TritonModelException, match=r"^Error when creating Metric: "):
        repo.run(lambda: family("m").Metric({label: "x"}))
    assert samples(repo.metrics) == {}


def test_a_name_of_another_kind_is_taken(repo: bls.ModelRepository) -> None:
    repo.run(lambda: MetricFamily("m", "d", MetricFamily.COUNTER))
    for kind in (MetricFamily.GAUGE, MetricFamily.HISTOGRAM):
        with pytest.raises(TritonModelException, match="Family name already exists with different type"):
            repo.run(lambda kind=kind: MetricFamily("m", "d", kind))


@pytest.mark.parametrize(("kind", "verb", "amount", "message"), [
    ("counter", "increment", -1, "can only be incremented monotonically by non-negative values"),
    ("counter", "set", 1, "TRITONSERVER_METRIC_KIND_COUNTER does not support Set"),
    ("counter", "observe", 1, "TRITONSERVER_METRIC_KIND_COUNTER does not support Observe"),
    ("gauge", "observe", 1, "TRITONSERVER_METRIC_KIND_GAUGE does not support Observe"),
    ("histogram", "increment", 1, "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment"),
    ("histogram", "set", 1, "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Set"),
    ("histogram", "value", None, "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value"),
])  # fmt: skip
def test_operations_that_a_metric_kind_refuses(
    repo: bls.ModelRepository, kind: str, verb: str, amount: float | None, message: str
) -> None:
    def body() -> None:
        metric = family("m", kind).Metric({}, [1.0] if kind == "histogram" else None)
        getattr(metric, verb)(*([] if amount is None else [amount]))

    what = "get" if verb == "value" else verb
    with pytest.raises(TritonModelException, match=rf"^Failed to {what} metric value: .*{message}"):
        repo.run(body)
    assert all(v == 0 for v in samples(repo.metrics).values())


@pytest.mark.parametrize("buckets", [[2, 1], [1, 1], [1.0, float("inf"), 3], [1, 2, 2.0]])
def test_the_buckets_of_a_histogram_increase(repo: bls.ModelRepository, buckets: Any) -> None:
    words = "^Error when creating Metric: .*: Bucket Boundaries must be strictly sorted$"
    with pytest.raises(TritonModelException, match=words):
        repo.run(lambda: family("m", "histogram").Metric({}, buckets))


@pytest.mark.parametrize("buckets", [[], [float("inf")], [float("nan")], [1, float("nan")]])
def test_buckets_that_the_server_takes(repo: bls.ModelRepository, buckets: Any) -> None:
    def body() -> None:
        metric = family("m", "histogram").Metric({}, buckets)
        metric.observe(0.5)
        metric.observe(7)

    repo.run(body)
    got = samples(repo.metrics)
    assert ((got["m_count", ()], got["m_sum", ()]), got["m_bucket", (("le", "+Inf"),)]) == ((2, 7.5), 2)
    assert 'm_bucket{le="+Inf"} 2' in repo.metrics.text("m")


@pytest.mark.parametrize(("kind", "labels", "buckets", "message"), [
    ("counter", ["a"], None, "Labels must be a dictionary."),
    ("counter", "a", None, "Labels must be a dictionary."),
    ("gauge", {}, [1.0], "Unexpected buckets found."),
    ("counter", None, [1.0], "Unexpected buckets found."),
    ("histogram", {}, None, "Missing required buckets."),
    ("histogram", {}, (1.0, 2.0), "Buckets must be a list."),
])  # fmt: skip
def test_metric_arguments_that_the_stub_refuses(
    repo: bls.ModelRepository, kind: str, labels: Any, buckets: Any, message: str
) -> None:
    with pytest.raises(TritonModelException) as raised:
        repo.run(lambda: family("m", kind).Metric(labels, buckets))
    assert str(raised.value) == f"Failed to create metric. {message}"


def test_buckets_are_numbers(repo: bls.ModelRepository) -> None:
    with pytest.raises(RuntimeError, match="Unable to cast"):
        repo.run(lambda: family("m", "histogram").Metric({}, ["x"]))


def test_labels_are_text_but_their_names_may_be_numbers(repo: bls.ModelRepository) -> None:
    for value in (1, None, 1.5, ["x"]):
        with pytest.raises(TritonModelException, match="attempt to access JSON non-string as string"):
            repo.run(lambda value=value: family("m").Metric({"a": value}))
    with pytest.raises(TritonModelException, match="Invalid label name"):  # "1" begins with a digit
        repo.run(lambda: family("m").Metric({1: "a"}))
    with pytest.raises(TritonModelException, match="The surrogate pair in string is invalid"):
        repo.run(lambda: family("m").Metric({"a": "\ud800"}))


def test_a_counter_takes_what_is_not_negative(repo: bls.ModelRepository) -> None:
    def body() -> float:
        metric = family("m").Metric()
        metric.increment(float("nan"))
        return metric.value()

    assert repo.run(body) != repo.run(body)  # NaN, as on the real server


def test_a_family_that_is_dropped_takes_its_metrics_with_it(repo: bls.ModelRepository) -> None:
    def body() -> list[float]:
        metric = MetricFamily("gone", "d", MetricFamily.GAUGE).Metric()
        for verb, arguments in (("set", [1]), ("increment", [1]), ("observe", [1]), ("value", [])):
            what = "get" if verb == "value" else verb
            with pytest.raises(TritonModelException) as raised:
                getattr(metric, verb)(*arguments)
            assert str(raised.value).startswith(
                f"Failed to {what} metric value: Invalid metric operation as the corresponding 'MetricFamily'"
            )
        values = []
        for _ in range(2):  # each begins anew, but not while another family of the name is kept
            short = MetricFamily("gone", "d", MetricFamily.GAUGE)
            short.Metric({"a": "b"}).increment(2)
            values.append(short.Metric({"a": "b"}).value())
            del short
        keeping = family("gone", "gauge").Metric({"a": "b"})
        keeping.increment(1)
        for _ in range(2):
            short = MetricFamily("gone", "d", MetricFamily.GAUGE)
            short.Metric({"a": "b"}).increment(2)
            del short
        return [*values, keeping.value()]

    assert (repo.run(body), samples(repo.metrics)) == ([2, 2, 5], {("gone", (("a", "b"),)): 5})


def test_a_metric_that_is_dropped_keeps_its_value_with_its_family(repo: bls.ModelRepository) -> None:
    kept = repo.run(lambda: family("m"))
    assert "m" not in {name for name, _ in samples(repo.metrics)}  # without a metric
    repo.run(lambda: kept.Metric({"a": "b"}).increment(5))
    assert repo.run(lambda: kept.Metric({"a": "b"}).value()) == 5


def test_arguments_of_a_wrong_kind(repo: bls.ModelRepository) -> None:
    families = [(name, text, MetricFamily.COUNTER) for name, text in ((None, "d"), (5, "d"), ("m", None))]
    for arguments in (*families, *(("m", "d", kind) for kind in (0, "COUNTER", None))):
        with pytest.raises(TypeError, match=r"MetricFamily"):
            repo.run(lambda arguments=arguments: MetricFamily(*arguments))
    for amount in ("x", None, [1]):
        with pytest.raises((TypeError, TritonModelException)):
            repo.run(lambda amount=amount: family("m", "gauge").Metric().set(amount))


# Without separators and control characters other than these: prometheus_client's own parser trips over them.
texts = st.text(st.characters(exclude_categories=("C", "Z")) | st.sampled_from(' "\\\n{}#'), max_size=8)


@given(st.dictionaries(texts, st.floats(allow_nan=False), min_size=1, max_size=5), texts)
def test_any_label_value_and_description_can_be_read_back(values: dict[str, float], description: str) -> None:
    metrics = Metrics()
    family = metrics.family("gauge_of", description, "gauge")
    for label, value in values.items():
        family.metric({"label": label}, None).set(value)
    read = {
        s.labels["label"]: s.value
        for f in text_string_to_metric_families(metrics.text())
        for s in f.samples
        if s.name == "gauge_of"
    }
    assert read == values


def test_counting_from_many_threads() -> None:
    metric = Metrics().family("m", "d", "counter").metric({}, None)
    threads = [threading.Thread(target=lambda: [metric.increment(1) for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metric.value() == 4000


COUNTS_RUNS = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily("runs_total", "d", pb_utils.MetricFamily.COUNTER)
        self.metric = self.family.Metric({"m": "a"})
    def execute(self, requests):
        self.metric.increment(1)
        return [pb_utils.InferenceResponse() for _ in requests]
"""


def test_metrics_outlive_the_model_that_made_them(repo: bls.ModelRepository) -> None:
    for runs in (1, 2, 3):
        repo.define("m", COUNTS_RUNS)
        repo.infer("m", {})
        assert samples(repo.metrics) == {("runs_total", (("m", "a"),)): runs}
        if runs == 2:
            repo.unload("m")
            gc.collect()
            assert samples(repo.metrics) == {("runs_total", (("m", "a"),)): 2}


def test_a_family_that_initialize_does_not_keep(repo: bls.ModelRepository) -> None:
    """It would work here and fail on the server, if this were not so."""
    repo.define("m", COUNTS_RUNS.replace("self.family", "family"))
    error = repo.infer("m", {}).error
    assert "the corresponding 'MetricFamily' has been deleted" in error.message()


def test_metrics_outside_of_models_count_for_themselves() -> None:
    """As in a test that calls `initialize` directly: twice, in two tests."""
    for _ in range(2):
        family = MetricFamily("requests_total", "By hand.", MetricFamily.COUNTER)
        metric = family.Metric(labels={"model": "m"})
        metric.increment(2)
        assert metric.value() == 2
        with pytest.raises(TritonModelException, match="Failed to increment"):
            metric.increment(-1)
    with pytest.raises(TritonModelException, match="Invalid metric name"):
        MetricFamily("a name", "", MetricFamily.GAUGE)
