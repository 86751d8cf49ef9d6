from __future__ import annotations

from pathlib import Path

import bls_notebook as bls
from bls_notebook.magics.result_lists import Records


def test_without_a_verb_it_lists(cells) -> None:
    assert "%%tritonmodel" in cells("%tritonrepo").text
    cells.model()
    for line in ("%tritonrepo", "%tritonrepo list"):
        shown = cells(line)
        assert isinstance(shown.value, Records)
        assert [record.name for record in shown.value] == ["times"]
        assert "times" in shown.text
        assert set(shown.bundles[0]) == {"text/plain", "text/html"}


def test_a_watch_is_a_table_where_no_widget_can_be(cells) -> None:
    cells.model()
    cells("%bls times IN=[1]")
    shown = cells("%blswatch --interval 1s")
    assert shown.value.seconds == 1
    assert "answered" in shown.text
    assert "times" in shown.text
    assert set(shown.bundles[0]) == {"text/plain", "text/html"}
    assert "expected a number from 0.1 on" in cells("%blswatch --interval 0").text


def test_use_load_unload(cells, folder: Path) -> None:
    used = cells(f"%tritonrepo use {folder}")
    assert "2 models" in " ".join(used.text.split())
    assert bls.current_repository().paths == (folder.resolve(),)
    assert cells("%tritonrepo load disk").value.state == "READY"
    assert cells("%bls disk IN=[1]").value["OUT"].as_numpy().tolist() == [10]
    assert "'disk' is unloaded" in cells("%tritonrepo unload disk").text
    assert not bls.current_repository().ready("disk")
    assert "'disk' was not loaded" in cells("%tritonrepo unload disk").text


def test_check_says_what_will_bite(cells, folder: Path) -> None:
    cells(f"%tritonrepo use {folder}")
    shown = cells("%tritonrepo check broken")
    assert shown.value.models == ("broken",)
    assert shown.value.has_problems
    assert "1 model checked" in shown.text
    assert "why: " in shown.text
    assert set(shown.bundles[0]) == {"text/plain", "text/html"}
    assert "no problem found by" in cells("%tritonrepo check disk").text
    assert isinstance(cells("%tritonrepo check nope").error, bls.ModelNotFoundError)


def test_use_with_a_folder_of_backends(cells, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    cells(f"%tritonrepo use {folder} --backend-directory {tmp_path}")
    repository = bls.current_repository()
    assert repository.backend_directory == tmp_path.resolve()
    cells(f"%tritonrepo use {folder} --backend-directory {tmp_path}")
    assert bls.current_repository() is repository, "nothing has changed"
    failed = cells(f"%tritonrepo use {folder} --backend-directory {tmp_path / 'nowhere'}")
    assert "backend_directory" in failed.text
    assert "no such folder" in " ".join(failed.text.split())  # the path before it may break the line
    assert bls.current_repository() is repository
    cells(f"%tritonrepo use {folder}")
    assert bls.current_repository().backend_directory is None


def test_one_that_fails_does_not_keep_the_others_from_loading(cells, folder: Path) -> None:
    cells(f"%tritonrepo use {folder}")
    failed = cells("%tritonrepo load broken disk nope")
    assert isinstance(failed.error, bls.ModelNotFoundError)
    assert bls.current_repository().ready("disk")
    assert "no_such_module" in failed.text
    assert "'nope'" in failed.text
    assert len(failed.outputs) == 3
    cells("%tritonrepo unload disk")
    assert isinstance(cells("%tritonrepo load --all").error, bls.ModelLoadError)
    assert bls.current_repository().ready("disk")


def test_reload_reads_the_files_again_and_shows_several_as_one_table(cells, folder: Path) -> None:
    cells(f"%tritonrepo use {folder}")
    cells("%tritonrepo load disk")
    cells.model()
    assert [record.name for record in cells("%tritonrepo reload times disk times").value] == ["times", "disk"]
    file = folder / "disk" / "1" / "model.py"
    file.write_text(file.read_text().replace("* 10", "* 30"))
    cells("%tritonrepo reload disk")
    assert cells("%bls disk IN=[1]").value["OUT"].as_numpy().tolist() == [30]


def test_config_is_complete(cells) -> None:
    cells.model()
    shown = cells("%tritonrepo config times")
    for text in (shown.text, shown.html):
        assert "instance_group" in text
        assert "TYPE_FP32" in text


def test_only_another_folder_closes_the_repository_and_says_so(cells, folder: Path) -> None:
    before = bls.current_repository()
    cells.model()
    failed = cells("%tritonrepo use no/such/folder")
    assert isinstance(failed.error, bls.BLSError)
    assert "no such folder" in " ".join(failed.text.split())  # the path before it may break the line
    assert bls.current_repository().ready("times")
    assert "1 model defined in cells removed" in " ".join(cells(f"%tritonrepo use {folder}").text.split())
    assert before.closed
    cells.model()
    assert cells(f"%tritonrepo use {folder}").success
    assert bls.current_repository().ready("times"), "the same folder loses nothing"
    assert not cells("%tritonrepo use").stderr
    assert bls.current_repository().paths == ()


def test_use_fills_templates(cells, folder: Path) -> None:
    config = folder / "disk" / "config.pbtxt"
    config.write_text('parameters { key: "p" value { string_value: "${word}" } }\n')
    cells(f"%tritonrepo use {folder} --fill word=a=b")
    assert "word=a=b (given)" in " ".join(cells("%tritonrepo load disk").text.split())
    assert bls.current_repository().config("disk").parameters["p"].string_value == "a=b"
    assert "expected KEY=VALUE" in str(cells(f"%tritonrepo use {folder} --fill word").error)


def test_a_closed_repository_is_replaced_by_use(cells) -> None:
    bls.current_repository().close()
    assert not cells.model().success
    cells("%tritonrepo use")
    assert cells.model().success


def test_clear(cells) -> None:
    cells.model()
    assert cells("%tritonrepo clear").success
    assert bls.current_repository().index() == []
    assert cells.model().success


def test_stats(cells) -> None:
    assert "no models are loaded" in cells("%tritonrepo stats").text
    failed = cells("%tritonrepo stats nope")
    assert isinstance(failed.error, bls.ModelNotFoundError)
    assert "'nope' is not loaded" in failed.text
    cells.model("a")
    cells.model("b")
    cells("%bls a IN=[1] -n 3")
    cells("%bls a IN=[-1]")
    shown = cells("%tritonrepo stats")
    assert [(record.name, record.success.count, record.fail.count) for record in shown.value] == [
        ("a", 3, 1),
        ("b", 0, 0),
    ]
    assert set(shown.bundles[0]) == {"text/plain", "text/html"}
    for text in (shown.text, shown.html):
        assert "no requests yet" in text
        assert "executions" in text
    assert [record.name for record in cells("figures = %tritonrepo stats b").value or []] == []
    assert [record.name for record in cells("figures").value] == ["b"]


COUNTED = """%%tritonmodel counted
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily("latency", "Of <i>it</i>", pb_utils.MetricFamily.GAUGE)
        self.metric = self.family.Metric({"model": "<u>counted</u>"})
        self.metric.set(2.5)
    def execute(self, requests):
        return [pb_utils.InferenceResponse() for _ in requests]
"""


def test_metrics(cells) -> None:
    assert cells(COUNTED).success
    shown = cells("%tritonrepo metrics")
    assert shown.value[0].name == "latency"
    assert shown.value[-1].name.startswith("nv_")
    assert "&lt;u&gt;counted&lt;/u&gt;" in shown.html
    assert "<u>" not in shown.html
    assert "<i>" not in shown.html
    only = cells("%tritonrepo metrics LATEN")
    assert [family.name for family in only.value] == ["latency"]
    assert "2.5" in only.text
    raw = cells("%tritonrepo metrics latency --raw")
    assert raw.stdout.splitlines()[1:] == ["# TYPE latency gauge", 'latency{model="<u>counted</u>"} 2.5']
    assert raw.value is None
    assert "nv_inference_count" in cells("%tritonrepo metrics --raw").stdout
    for line in ("%tritonrepo metrics nope", "%tritonrepo metrics nope --raw"):
        shown = cells(line)
        assert shown.success
        assert shown.value is None
        assert "no metric has 'nope'" in shown.text
        assert "latency" in shown.text


def test_a_trace_of_a_line(cells) -> None:
    source = COUNTED.replace(
        "return [pb_utils.InferenceResponse() for _ in requests]",
        "print(requests[0].trace().get_context()); return [pb_utils.InferenceResponse() for _ in requests]",
    )
    cells(source)
    assert '{"traceparent":"00-' in cells("%bls counted --trace").stdout
    assert cells("%bls counted").stdout.startswith("None")


def test_export(cells, folder: Path, tmp_path: Path) -> None:
    cells(f"%tritonrepo use {folder}")
    cells("%tritonrepo load disk")
    shown = cells(f"%tritonrepo export {tmp_path / 'ship'} disk --for docker")
    assert shown.value.names == ("disk",)
    assert "1 model" in shown.text
    assert (tmp_path / "ship" / "Dockerfile").exists()
    refused = cells(f"%tritonrepo export {tmp_path / 'many'} disk --for docker --replicas 3")
    assert "replicas: got 3 for 'docker', expected 1: only compose supports several servers" in str(refused.error)
    shown = cells(f"%tritonrepo export {tmp_path / 'ship'} disk IN=[1.0, 2.0]")
    assert "prove.py compares" in " ".join(shown.text.split())
    assert (tmp_path / "ship" / "prove.py").exists()
    assert not (tmp_path / "ship" / "Dockerfile").exists()
    for wrong, said in (("IN=[1.0]", "inputs need exactly one model"), ("disk IN=1 --requests x", "not both")):
        assert said in str(cells(f"%tritonrepo export {tmp_path / 'ship'} {wrong}").error)
    assert "invalid choice: 'mars'" in str(cells(f"%tritonrepo export {tmp_path} --for mars").error)


def test_try_runs_a_repository_and_says_what_to_type_next(cells, tmp_path: Path) -> None:
    io = "".join(f'{way} [{{ name: "A" data_type: TYPE_FP32 dims: [2] }}] ' for way in ("input", "output"))
    for name in ("resize", "detect"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(f'platform: "tensorrt_plan" {io}')
    tried = cells(f"%tritonrepo try {tmp_path} --latency resize=1ms --values random --seed 3")
    assert [m.kind for m in tried.value.models] == ["stub", "stub"]
    assert "1/model.plan is missing" in " ".join(tried.text.split())
    line = next(line.strip() for line in tried.text.splitlines() if line.strip().startswith("%bls resize"))
    answer = cells(line)
    assert answer.value.stubs == ("resize",)
    assert "stub: went through a stub: resize" in " ".join(answer.text.split())
    many = cells(f"{line} -n 3")
    assert "stub: went through a stub: resize" in " ".join(many.text.split())
    assert "stub" in cells("%tritonrepo list").text
    assert "stub" in cells("%blsinspect resize").text
    assert "READY stub" in cells("%blswatch").text
    for wrong, words in (
        ("--latency resize", "expected MODEL=TIME, such as resize=5ms"),
        ("--latency resize=x", "expected a time with its unit, such as 500ms"),
        ("--values ones", "invalid choice: 'ones'"),
        ("--real nope", "there is no model 'nope'"),
    ):
        assert words in str(cells(f"%tritonrepo try {tmp_path} {wrong}").error), wrong
    assert bls.current_repository().ready("resize"), "what was there stays"
    assert "no such folder" in str(cells(f"%tritonrepo try {tmp_path / 'nowhere'}").error)


def test_stubs_answer_what_the_notebook_has_recorded(cells, folder: Path, tmp_path: Path) -> None:
    cells(f"%tritonrepo use {folder}")
    cells("%tritonrepo load disk")
    cells("kept = %bls disk IN=[1, 2]")
    (folder / "disk" / "1" / "model.py").write_text("import no_such_thing_x")
    io = "".join(
        f'{way} [{{ name: "{name}" data_type: TYPE_FP32 dims: [-1] }}] '
        for way, name in (("input", "IN"), ("output", "OUT"))
    )
    (folder / "disk" / "config.pbtxt").write_text(f'backend: "python" {io}')
    cells(f"%tritonrepo try {folder} --values recorded")
    answer = cells("%bls disk IN=[5, 6]").value
    assert answer.stubs == ("disk",)
    assert answer["OUT"].as_numpy().tolist() == [10, 20]
