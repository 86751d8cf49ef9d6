from __future__ import annotations

import re
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.lifetimes import memory_recording, owners
from bls_notebook.lifetimes.records import Lifetimes

KEEPS = """\
%%tritonmodel keeps --input "IN FP32 [-1]" --output "OUT FP32 [-1]"
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    kept = []

    def execute(self, requests):
        arrays = [request.inputs()[0].as_numpy() for request in requests]
        self.kept += arrays
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array + 1)]) for array in arrays]
"""


def test_blsmemory_shows_left_blocks_and_their_owners(sender) -> None:
    shown = sender("%%blsmemory\nfor _ in range(3):\n    answer = %bls times IN=images")
    assert shown.success
    assert shown.value is None
    [bundle] = shown.bundles
    assert set(bundle) == {"text/plain", "text/html"}
    assert "left behind by this cell: 3.9 KiB on cpu in 2 blocks, held by answer; to release: del answer" in (
        " ".join(bundle["text/plain"].split())
    )
    assert 'class="bls-figure"' in bundle["text/html"]
    assert bundle["text/plain"].startswith("memory of In [3] · ")


def test_blsmemory_finds_blocks_that_a_model_keeps(sender) -> None:
    sender(KEEPS)
    shown = sender("%%blsmemory --limit 4 --into few\nfor _ in range(3):\n    %bls keeps IN=images -q")
    assert "held by keeps.kept" in " ".join(shown.text.split())
    record = sender("few.record").value
    assert (len(record.lives) <= 4, record.dropped > 0) == (True, True)
    shown = sender("%%blsmemory\n%bls times IN=images -q;\nNone")
    assert ("left behind by" in shown.text, "nothing" in shown.text) == (False, True)


def test_the_value_of_the_cell_is_its_value_and_known_as_out(sender) -> None:
    shown = sender("%%blsmemory\n%bls times IN=[1.0]")
    assert shown.value["OUT"].as_numpy().tolist() == [2.0]
    assert "held by Out[3]" in " ".join(shown.text.split())
    silent = sender("%%blsmemory\n%bls times IN=[1.0];")
    assert silent.value is None
    assert "Out[" not in silent.text


def test_into_keeps_what_was_recorded_and_it_draws_as_a_value_but_not_with_q(sender) -> None:
    assert sender("%%blsmemory --into before -q\nanswer = %bls times IN=images").bundles == []
    track = sender("before").value
    assert isinstance(track.record, Lifetimes)
    assert track.record.name == "In [3]"
    shown = sender("before")
    assert shown.text.startswith("memory of In [3]")
    assert 'class="bls-figure"' in shown.html
    assert sender("before.record").text == shown.text
    assert "<MemoryTrack" in sender("[before]").text


def test_save_writes_a_file_that_draws_later_or_loses_nothing(sender, tmp_path: Path) -> None:
    shown = sender(f"%%blsmemory --save {tmp_path / 'm.json.gz'}\nanswer = %bls times IN=images")
    assert "saved to m.json.gz" in shown.text
    record = bls.open_file(tmp_path / "m.json.gz")
    assert sender(f"bls.open_file({str(tmp_path / 'm.json.gz')!r})") is not None
    assert [life.tensor for life in record.left_behind()] == ["OUT", "COUNT"]
    (tmp_path / "taken.json").mkdir()
    shown = sender(f"%%blsmemory --into kept --save {tmp_path / 'taken.json'}\n40 + 2")
    assert (shown.value, sender("kept.record.name").value) == (42, "In [5]")
    assert re.search("(?s)--save.*irectory", shown.text)


def test_a_cell_that_raises_shows_what_was_recorded(sender) -> None:
    failed = sender("%%blsmemory --into seen\nanswer = %bls times IN=images\nanswer.nothing")
    assert isinstance(failed.error, AttributeError)
    assert "held by answer" in " ".join(failed.text.split())
    assert "answer.nothing" in failed.stdout
    assert "blsmemory.py" not in failed.stdout
    assert len(sender("seen.record.lives").value) > 0
    failed = sender("%%blsmemory\nx = = 2")
    assert ("SyntaxError" in failed.stdout, failed.bundles) == (True, [])
    assert sender("%%blsmemory\n1").success  # both have ended


def test_ctrl_c_during_the_search_for_owners(sender, monkeypatch: pytest.MonkeyPatch) -> None:
    registered = list(owners.providers)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(memory_recording, "find_holders", interrupted)
        failed = sender("%%blsmemory\nkept = %bls times IN=images\nkept")
    assert isinstance(failed.error, KeyboardInterrupt)
    assert owners.providers == registered  # nothing keeps the value of the cell
    assert sender("%%blsmemory\n1").success


def test_one_track_at_a_time(sender) -> None:
    failed = sender("%%blsmemory\nimport bls_notebook as bls\nwith bls.track_memory():\n    pass")
    assert "one track can be on at a time" in failed.stdout
    with bls.track_memory() as outer:
        failed = sender("%%blsmemory\n1")
        assert outer.bytes() == 0
    assert (failed.success, failed.stdout, "one track can be on at a time" in failed.text) == (False, "", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--limt 3", "%%blsmemory: unknown option '--limt'; did you mean --limit?"),
        ("--limit 0", "%%blsmemory: --limit: got '0', expected a whole number from 1."),
        ("--into a-b", "%%blsmemory: --into: got 'a-b', expected a variable name"),
        ("--save no/such/a.json", "%%blsmemory: --save: got 'no/such/a.json', expected a file in a folder"),
        ("--static --widget w", "%%blsmemory: --static and --widget exclude each other."),
        ("leaky", "%%blsmemory: unexpected argument 'leaky'."),
    ],
)  # fmt: skip
def test_a_bad_argument_gets_one_line_and_runs_nothing(cells, options: str, message: str) -> None:
    failed = cells(f"%%blsmemory {options}\nran = True")
    assert failed.stderr.startswith(f"UsageError: {message}")
    assert failed.stderr.count("\n") == 1
    assert "ran" not in cells.shell.user_ns


def test_help_and_completion_have_the_options(cells, complete) -> None:
    assert "the blocks that the cell left behind" in " ".join(cells("%%blsmemory -h\n1").stdout.split())
    assert "--save FILE" in cells.shell.find_cell_magic("blsmemory").__doc__
    assert complete("%%blsmemory --into a --s") == ["%%blsmemory --into a --save", "%%blsmemory --into a --static"]


def test_a_widget_that_was_asked_for(sender) -> None:
    pytest.importorskip("anywidget")
    shown = sender("%%blsmemory --widget chart\nanswer = %bls times IN=images")
    widget = sender("chart").value
    assert f'data-bls-place="{widget.place}"' in shown.html
    assert widget.life is None
    widget.selected = widget.record.alive()[0].id
    assert widget.life == widget.record.alive()[0]
    assert "held by answer" in " ".join(shown.text.split())


def test_a_widget_needs_anywidget(cells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    failed = cells("%%blsmemory --widget chart\nran = True")
    assert "--widget needs anywidget: pip install anywidget" in failed.stderr
    assert "ran" not in cells.shell.user_ns


def test_a_widget_covers_the_figure_in_a_frontend(sender, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anywidget")
    monkeypatch.setattr("bls_notebook.display.widgets.can_live", lambda: True)
    assert "data-bls-place" in sender("%%blsmemory\nanswer = %bls times IN=images").html
    assert "data-bls-place" not in sender("%%blsmemory --static\nanswer = %bls times IN=images").html
    sender("%config BLSNotebook.widgets = False")
    assert "data-bls-place" not in sender("%%blsmemory\nanswer = %bls times IN=images").html
