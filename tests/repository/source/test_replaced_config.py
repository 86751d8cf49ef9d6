"""A cell keeps the configuration of the model on disk that it replaces."""

from __future__ import annotations

from pathlib import Path

import bls_notebook as bls
from tests.repository.models import saying

CONFIG = """\
backend: "%s"
max_batch_size: 4
input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
output { name: "OUT" data_type: TYPE_STRING dims: 1 label_filename: "labels.txt" }
instance_group { count: 3 kind: KIND_CPU }
version_policy { specific { versions: 7 } }
model_transaction_policy { decoupled: true }
parameters { key: "limit" value { string_value: "9" } }
"""
PAGE = saying('"cell"')


def on_disk(folder: Path, config: str, name: str = "page") -> Path:
    (folder / name / "7").mkdir(parents=True)
    (folder / name / "7" / "model.py").write_text(saying('"disk"'))
    (folder / name / "labels.txt").write_text("a\nb\n")
    (folder / name / "config.pbtxt").write_text(config)
    return folder / name / "config.pbtxt"


def test_a_cell_keeps_inputs_outputs_and_policies_of_a_model_on_disk(tmp_path: Path) -> None:
    file = on_disk(tmp_path, CONFIG % "python")
    with bls.ModelRepository(tmp_path) as repo:
        record = repo.define("page", PAGE)
        assert record.config_source.endswith("page/config.pbtxt")
        assert "from a cell with the configuration of" in str(record)
        assert [t.name for t in (*record.inputs, *record.outputs)] == ["TEXT", "OUT"]
        assert (record.version, record.instances, record.max_batch_size, record.decoupled) == (1, 3, 4, True)
        assert repo.config("page").parameters["limit"].string_value == "9"
        file.write_text(CONFIG.replace("count: 3", "count: 2") % "python")
        assert repo.define("page", PAGE).instances == 2, "the file is read again"
        assert repo.define("page", PAGE, {"max_batch_size": 2}).inputs == (), "a given configuration replaces it"
        repo.set_config("page", "max_batch_size: 3")
        record = repo.define("page", PAGE)
        assert (record.max_batch_size, record.inputs, record.config_source) == (3, (), "")


def test_a_cell_that_replaces_a_model_of_another_backend_is_a_python_model(tmp_path: Path) -> None:
    gpu = CONFIG.replace("KIND_CPU", "KIND_GPU gpus: 5") + "optimization { cuda { graphs: true } }"
    on_disk(tmp_path, gpu % "tensorrt")
    with bls.ModelRepository(tmp_path) as repo:
        record = repo.define("page", PAGE)
        assert (record.backend, record.instances, record.decoupled) == ("python", 3, True)


def test_a_cell_keeps_the_configuration_of_a_stub(tmp_path: Path) -> None:
    on_disk(tmp_path, 'backend: "vllm"', "llm")
    repo, _ = bls.try_repository(tmp_path)
    for _ in range(2):
        record = repo.define("llm", PAGE)
        assert (record.inputs[0].name, record.decoupled, record.config_source) == ("text_input", True, "its stub")
    repo.close()


def test_a_config_that_cannot_be_read_is_a_warning_of_the_cell(tmp_path: Path) -> None:
    on_disk(tmp_path, "input [ {")
    with bls.ModelRepository(tmp_path) as repo:
        record = repo.define("page", PAGE)
        assert "no readable configuration to keep" in record.warnings[0]
        assert record.config_source == ""
