"""The pipelines that the notebooks of the course build, cell by cell, with what they call replaced."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from bls_notebook.testing import RepositoryUnderTest
from tests.course.test_exercises import EXERCISES
from tests.waiting import LIMIT

from .conftest import COURSE, Define

pytestmark = pytest.mark.triton_repository("../../model_repository")
ONE = np.zeros((8, 8), np.uint8)
ONE[:, 4] = 16
FEATURES = {"FEATURES": np.zeros(64, np.float32)}
CONFIG = """\
backend: "python"
max_batch_size: 0
input {{ name: "{}" data_type: TYPE_UINT8 dims: [ 8, 8 ] }}
output {{ name: "{}" data_type: {} dims: [ {} ] }}
"""


def sure(digit: int, confidence: float = 1.0) -> dict[str, Any]:
    odds = np.full((1, 10), (1 - confidence) / 9, np.float32)
    odds[0, digit] = confidence
    return {"PROBABILITIES": odds, "LABEL": np.int32([[digit]])}


def labels_of(request: Any) -> dict[str, Any]:
    """Stands for the classifier: the brightest column of each picture."""
    features = request.inputs()[0].as_numpy().reshape(-1, 8, 8)
    labels = features.sum(axis=1).argmax(axis=1).astype(np.int32)
    return {"LABEL": labels[:, np.newaxis], "PROBABILITIES": np.zeros((len(labels), 10), np.float32)}


def test_a_negative(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    from_notebook("00_quickstart.ipynb", "negative")
    answer = triton_repository.infer("negative", {"IMAGE": np.uint8([[0, 16], [1, 17]])})
    triton_repository.assert_answer(answer, {"NEGATIVE": [[255, 15], [240, 0]]})


@pytest.mark.parametrize("confidence", [0.9, 0.4])
def test_the_reader_asks_the_expert_when_unsure(
    triton_repository: RepositoryUnderTest, from_notebook: Define, confidence: float
) -> None:
    from_notebook("00_quickstart.ipynb", "reader")
    with (
        triton_repository.stub("digit_preprocess", FEATURES),
        triton_repository.stub("digit_classifier", sure(1, confidence)),
        triton_repository.stub("digit_expert", sure(7)) as expert,
    ):
        answer = triton_repository.infer("reader", {"IMAGE": ONE})
    triton_repository.assert_answer(answer, {"DIGIT": [1 if confidence > 0.6 else 7]})
    assert len(expert.calls) == (confidence < 0.6)


def test_the_reader_asks_nobody_about_a_blank(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    from_notebook("00_quickstart.ipynb", "reader")
    answer = triton_repository.infer("reader", {"IMAGE": np.zeros((8, 8), np.uint8)})
    triton_repository.assert_answer(answer, {"DIGIT": [-1], "CONFIDENCE": [1.0]})
    triton_repository.assert_not_called("digit_preprocess")


def test_a_strip_goes_on_after_an_error(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    from_notebook("00_quickstart.ipynb", "strip_reader")
    reader = CONFIG.format("IMAGE", "DIGIT", "TYPE_INT32", 1)
    said: list[Any] = [{"DIGIT": np.int32([4])}, "smudged", {"DIGIT": np.int32([2])}]
    with triton_repository.stub("reader", said, config=reader):
        answers = list(triton_repository.stream("strip_reader", {"IMAGES": np.stack([ONE] * 3)}))
    told = [a.error.message() if a.error else a.as_numpy()["DIGIT"].tolist() for a in answers[:3]]
    assert told[::2] == [[4], [2]]
    assert "smudged" in told[1]


def test_a_scan_is_the_picture(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    from_notebook("01_sync_and_async.ipynb", "scanner")
    triton_repository.assert_answer(triton_repository.infer("scanner", {"IMAGE": ONE}), {"SCAN": ONE})
    triton_repository.assert_no_warnings()


def test_a_checksum_reads_the_picture_5000_times(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    from_notebook("01_sync_and_async.ipynb", "checksum")
    once = sum(16 * pow(31, 63 - at, 65_521) for at in range(4, 64, 8))  # the pixels of ONE
    whole = once * sum(pow(31, 64 * times, 65_521) for times in range(5000)) % 65_521
    triton_repository.assert_answer(triton_repository.infer("checksum", {"IMAGE": ONE}), {"SUM": [whole]})


@pytest.mark.parametrize(("model", "nth", "together"), [("page", 0, 1), ("page", 1, 3), ("postcode", 0, 1)])
def test_scans_side_by_side_or_not(
    triton_repository: RepositoryUnderTest, from_notebook: Define, model: str, nth: int, together: int
) -> None:
    """Gathered `async_exec` scans at once, where the scanner has the instances; `exec` one by one."""
    from_notebook("01_sync_and_async.ipynb", model, nth)
    images = np.stack([np.roll(ONE, shift, axis=1) for shift in (0, 1, 2)])
    scanner = CONFIG.format("IMAGE", "SCAN", "TYPE_UINT8", "8, 8")
    scanner += "instance_group { count: 3 kind: KIND_CPU }\n"
    here = Barrier(together, timeout=LIMIT)

    def scan(request: Any) -> dict[str, Any]:
        here.wait()  # until as many are at work
        return {"SCAN": request.inputs()[0].as_numpy()}

    with triton_repository.stub("scanner", scan, config=scanner), triton_repository.stub("digit_classifier", labels_of):
        answer = triton_repository.infer(model, {"IMAGES": images})
    triton_repository.assert_answer(answer, {"DIGITS": [4, 5, 6]})
    triton_repository.assert_called("scanner", 3, caller=model)
    if together > 1:
        triton_repository.assert_overlapped(together, "scanner")
    else:
        triton_repository.assert_not_overlapped("scanner")


@pytest.mark.parametrize("nth", [0, 1])
def test_a_listener_sends_its_scan_back(
    triton_repository: RepositoryUnderTest, from_notebook: Define, nth: int
) -> None:
    from_notebook("01_sync_and_async.ipynb", "listener", nth)
    (answer,) = triton_repository.stream("listener", {"IMAGE": ONE})
    triton_repository.assert_answer(answer, {"SCAN": ONE})


@pytest.mark.parametrize("nth", [0, 1])
def test_a_strip_is_read_picture_by_picture(
    triton_repository: RepositoryUnderTest, from_notebook: Define, nth: int
) -> None:
    from_notebook("02_decoupled_streams.ipynb", "strip_reader", nth)
    images = np.stack([np.roll(ONE, shift, axis=1) for shift in (0, 3)])
    with triton_repository.stub("digit_classifier", labels_of):
        answers = [a.as_numpy() for a in triton_repository.stream("strip_reader", {"IMAGES": images})]
    assert [int(a["LABEL"].item()) for a in answers if a] == [4, 7]


def test_a_digit_is_spoken(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    from_notebook("02_decoupled_streams.ipynb", "speaker")
    triton_repository.assert_answer(triton_repository.infer("speaker", {"LABEL": [[7]]}), {"WORD": ["seven"]})


def test_a_countdown(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    from_notebook("02_decoupled_streams.ipynb", "countdown")
    answers = [a.as_numpy() for a in triton_repository.stream("countdown", {"N": np.int32([3])})]
    assert [int(a["LEFT"].item()) for a in answers if a] == [3, 2, 1, 0]


def test_a_vector_is_scaled(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    from_notebook("03_devices.ipynb", "scale")
    answer = triton_repository.infer("scale", {"IN": np.float32([1, 2, 4])})
    triton_repository.assert_answer(answer, {"OUT": [0.25, 0.5, 1]})


@pytest.mark.slow
@pytest.mark.parametrize("mended", [False, True])
def test_the_mended_model_keeps_no_memory_of_the_gpu(
    triton_repository: RepositoryUnderTest,
    from_notebook: Define,
    simulated_gpu: None,
    mended: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not mended:  # it never releases the memory
        monkeypatch.setattr("bls_notebook.testing.assertions._PATIENCE", 0.01)
    from_notebook("04_memory_lifetimes.ipynb", "mended", -1 if mended else 0)
    recording = {"SIGNAL": np.float32([1, -9, 3]), "NOISE": np.float32([0, 1, 0])}
    triton_repository.infer("mended", recording)
    kept = nullcontext() if mended else pytest.raises(AssertionError, match="held by mended")
    with kept, triton_repository.assert_nothing_left("gpu:0"):
        answer = triton_repository.infer("mended", recording)
    triton_repository.assert_answer(answer, {"LOUDEST": [10]})


def test_wheels_are_five_side_by_side(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    from_notebook("12_somebody_elses_pipeline.ipynb", "find_wheels")
    boxes = triton_repository.infer("find_wheels", {"PHOTO": np.zeros((4, 9), np.float32)})["BOXES"].as_numpy()
    np.testing.assert_array_equal(boxes[1:, 0], boxes[:-1, 2])


@pytest.mark.triton_repository("../../notebooks/meter_reading/models", fill={"wheels": "3", "meter_instances": "1"})
@pytest.mark.parametrize(("yesterday", "plausible"), [(100, True), (10, False), (200, False)])
def test_a_meter_is_read(triton_repository: RepositoryUnderTest, yesterday: int, plausible: bool) -> None:
    """Its engine and its network are not here: replaced by what they would find."""
    edges = np.linspace(0, 1, 6, dtype=np.float32)
    boxes = np.stack([edges[:-1], 0 * edges[1:], edges[1:], 0 * edges[1:] + 1], axis=1)
    wheels = iter((1, 2, 3))
    with (
        triton_repository.stub("find_wheels", {"BOXES": boxes}),
        triton_repository.stub("read_wheel", lambda request: {"DIGIT": np.int32([[next(wheels)]])}),
    ):
        photo = np.zeros((40, 200), np.uint8)
        answer = triton_repository.infer("meter", {"PHOTO": photo, "YESTERDAY": np.int32([yesterday])})
    triton_repository.assert_answer(answer, {"READING": [123], "PLAUSIBLE": [plausible]})
    triton_repository.assert_called("read_wheel", 3, caller="meter")


def test_a_blank_is_an_answer_once_it_is_mended(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    blank = {"IMAGE": np.zeros((8, 8), np.uint8)}
    from_notebook("14_to_production.ipynb", "reader", 0)
    before = triton_repository.infer("reader", blank)
    assert "is blank" in before.error.message()
    from_notebook("14_to_production.ipynb", "reader")
    triton_repository.assert_answer(triton_repository.infer("reader", blank), {"DIGIT": [-1]})
    triton_repository.assert_not_called("digit_classifier")


def test_notebook_variables_are_not_in_models(triton_repository: RepositoryUnderTest, from_notebook: Define) -> None:
    from_notebook("14_to_production.ipynb", "blank")
    answer = triton_repository.infer("blank", {"IMAGE": ONE})
    assert "name 'images' is not defined" in answer.error.message()


@pytest.mark.parametrize("fails", [False, True])
def test_a_strip_asks_the_server_for_all_at_once(
    triton_repository: RepositoryUnderTest, from_notebook: Define, fails: bool
) -> None:
    from_notebook("14_to_production.ipynb", "strip")
    served = CONFIG.format("IMAGE", "DIGIT", "TYPE_INT32", 1) + "instance_group { count: 3 kind: KIND_CPU }\n"
    here = Barrier(3, timeout=LIMIT)

    def read(request: Any) -> Any:
        here.wait()
        digit = int(request.inputs()[0].as_numpy()[0, 0])
        return "lost" if fails and digit == 5 else {"DIGIT": np.int32([digit])}

    with triton_repository.stub("served_reader", read, config=served):
        images = np.stack([np.full((8, 8), digit, np.uint8) for digit in (4, 5, 6)])
        answer = triton_repository.infer("strip", {"IMAGES": images})
    if fails:
        assert "lost" in answer.error.message()
    else:
        triton_repository.assert_answer(answer, {"DIGITS": [4, 5, 6]})


def test_every_model_of_the_course_is_tested() -> None:
    """Here, or by the exercises of its notebook, which run it before their wrong solutions."""
    tests = Path(__file__).read_text(encoding="utf-8")
    exercised = {each.notebook for each in EXERCISES.values()} | {"15_cases", "16_puzzles", "index"}
    for notebook in COURSE.glob("*.ipynb"):
        cells = ["".join(c["source"]) for c in json.loads(notebook.read_text(encoding="utf-8"))["cells"]]
        models = {cell.split()[1] for cell in cells if cell.startswith("%%tritonmodel ")}
        if f'"{notebook.name}"' in tests:
            assert not [model for model in models if f'"{model}"' not in tests], notebook.name
        else:
            assert notebook.stem in exercised
