from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bls_notebook.display import render
from bls_notebook.profiling.analysis.tuning_words import advice, config_lines, sentence
from bls_notebook.profiling.records.comparison import Verdict
from bls_notebook.profiling.records.tuning import ModelSetting, TunedModel, Tuning, Walls
from tests.display.samples import HOSTILE
from tests.profiling.simulated import Model, session

MS = 1_000_000
ONE, THREE = ModelSetting(1), ModelSetting(3)
BATCHES = ModelSetting(1, 8, True, (8,), 500)


def tuning(**given: object) -> Tuning:
    models = (
        TunedModel("resize", 1, ONE, THREE, THREE, host_bytes=300 << 20),
        TunedModel("detect", 1, replace(ONE, max_batch_size=8), BATCHES, BATCHES),
    )
    gathered = session({"resize": Model([10 * MS])}, ("resize",) * 4)
    found = Tuning(
        "resize", 8, "", (), models, Walls(240 * MS, 82 * MS, 80 * MS), Walls(240 * MS, 82 * MS, 80 * MS),
        Walls(244 * MS), Verdict("queue", ""), gathered, runs=13, replays=90,
        pbtxt=tuple((m.name, config_lines(m)) for m in models),
    )  # fmt: skip
    found = replace(found, **given)  # type: ignore[arg-type]
    return replace(found, sentence=sentence(found), advice=advice(found))


def test_the_sentence_comes_first_then_figures_models_and_what_to_change() -> None:
    text = " ".join(render(tuning()).text.split())
    places = [
        text.index(words)
        for words in (
            "With 3 instances of `resize` and batches of 8 within 500 µs for `detect`, 8 requests at once "
            "are predicted to take 82 ms instead of 240 ms: 2.9 times as fast.",
            "With more, 80 ms is predicted at best", "as it is 244 ms",
            "resize 1 3", "# config.pbtxt of resize",
            "instance_group [{ count: 3 }] # 1 now", "dynamic_batching { preferred_batch_size",
        )
    ]  # fmt: skip
    assert places == sorted(places)
    assert "300 MiB" in render(tuning()).html


def test_a_run_is_compared_with_what_was_predicted() -> None:
    measured = Walls(244 * MS, 90 * MS)
    then = session({"resize": Model([10 * MS], instances=3)}, ("resize",) * 4)
    shown = render(tuning(measured=measured, then=then)).text
    assert "8 requests at once took 90 ms instead of 244 ms: 2.7 times as fast." in " ".join(shown.split())
    assert "More brings nothing" not in shown  # it was not run
    more = tuning(measured=replace(measured, best=89 * MS), then=then)
    assert more.sentence.endswith("More brings nothing: with up to twice as many instances, they took 89 ms.")
    assert "9% off" in render(tuning(measured=measured, then=then)).html
    unconfirmed = tuning(measured=Walls(244 * MS, 240 * MS), confirmed=False, pbtxt=())
    assert "8 requests at once took 240 ms, not the predicted 82 ms" in unconfirmed.sentence
    assert "Leave the setting as it is." in unconfirmed.advice[-1]
    assert "enough" not in render(unconfirmed).text


def test_smaller_batches_of_more_instances_are_the_reason() -> None:
    now, then = (session({"resize": Model([10 * MS], batch=n, instances=4 // n)}, ("resize",) * 4) for n in (4, 2))
    for run, words in ((then, "served smaller batches: 2.0 requests on average instead of 4.0."), (now, "(a lock, a")):
        found = tuning(measured=Walls(244 * MS, 240 * MS), confirmed=False, pbtxt=(), gathered=now, then=run)
        assert words in found.advice[-1]


@pytest.mark.parametrize(
    ("walls", "changed", "expected"),
    [
        (Walls(80 * MS, 80 * MS, 80 * MS), False, "The setting is the smallest that gets there"),
        (Walls(80 * MS, 81 * MS, 80 * MS), True, "Less would do, 3 instances of `resize`"),
    ],
)
def test_nothing_has_to_be_gained(walls: Walls, changed: bool, expected: str) -> None:
    model = TunedModel("resize", 1, ONE if changed else THREE, THREE, THREE)
    assert expected in tuning(predicted=walls, measured=Walls(80 * MS), models=(model,)).sentence


def test_a_better_setting_that_the_search_missed_is_said() -> None:
    same = tuple(replace(model, found=model.now) for model in tuning().models)
    walls = Walls(140 * MS, 140 * MS, 140 * MS)
    found = tuning(models=same, predicted=walls, measured=Walls(136 * MS, 0, 109 * MS), pbtxt=())
    assert found.sentence == (
        "No better setting was predicted, but there is one: 8 requests at once took 136 ms today, and 109 ms with "
        "up to twice as many instances."
    )


def test_a_simulation_that_does_not_explain_todays_run_has_no_headline() -> None:
    found = tuning(measured=Walls(400 * MS), pbtxt=())
    assert found.sentence.startswith("Unknown: as it is, 8 requests at once took 400 ms, but by the recorded work")
    assert "With " not in found.sentence
    assert "enough" not in render(found).text
    tried = tuning(measured=Walls(400 * MS, 100 * MS), pbtxt=())
    assert "they took 100 ms instead of 400 ms." in tried.advice[0]


def test_a_server_has_a_setting_of_its_own() -> None:
    model = TunedModel("work", 1, ONE, ONE, THREE, kind="KIND_GPU", devices=2, group="kind: KIND_GPU")
    found = tuning(models=(model,), predicted=Walls(90, 90, 90), measured=Walls(90), on_server=Walls(90, 30, 30))
    assert "On a Triton server each is a process: with 3 instances of `work`" in found.advice[-1]
    assert "[{ count: 2 kind: KIND_GPU }]  # 1 now; 1 in this kernel" in config_lines(model)
    assert config_lines(replace(model, on_server=ONE)) == ""


def test_model_names_are_escaped() -> None:
    model = TunedModel(HOSTILE, 1, ONE, THREE, THREE)
    html = render(tuning(models=(model,), pbtxt=((HOSTILE, config_lines(model)),), unseen=(HOSTILE,))).html
    assert not re.search(r"<script|<img|onerror=\"", html)
