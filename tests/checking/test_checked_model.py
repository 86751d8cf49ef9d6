from __future__ import annotations

import ast
import json
import string
from collections.abc import Callable
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook import checking
from bls_notebook.__main__ import main
from bls_notebook.checking import name_scope
from bls_notebook.checking.records import SEVERITIES, Findings, number_of_rules, rules
from bls_notebook.checking.releases import changes
from bls_notebook.display import render
from bls_notebook.repository.config.templates import lines_of
from tests.checking.conftest import CONFIG, MODEL, Check, codes, model, write

REPOSITORY = Path(__file__).parents[2] / "model_repository"


def test_nothing_is_found_in_a_good_model(findings: Callable[..., Findings]) -> None:
    found = findings(model("good"))
    assert found.findings == ()
    assert f"1 model checked: no problem found by {number_of_rules()} rules" in render(found).text


def test_every_rule_is_used_with_the_facts_of_its_texts() -> None:
    unused = {*rules()} - {"callee-input", "callee-output"}  # f"callee-{kind}"
    unused -= {rule for rule, change in changes().items() if change.field or change.names}
    for file in Path(checking.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            unused -= {node.value} if isinstance(node, ast.Constant) else set()
            rule = node.args[0] if isinstance(node, ast.Call) and node.args else None
            if isinstance(rule, ast.Constant) and rule.value in rules():
                facts = {"value", *(word.arg for word in node.keywords)}
                facts |= changes()[rule.value].facts().keys() if rule.value in changes() else set()
                texts = string.Formatter().parse("".join(rules()[rule.value][1:]))
                assert {name for _, name, _, _ in texts if name} <= facts, rule.value
    assert not unused
    assert {severity for severity, *_ in rules().values()} == set(SEVERITIES)


def test_nothing_bites_in_the_sample_models() -> None:
    with bls.ModelRepository(REPOSITORY) as repository:
        found = bls.check(repo=repository)
    assert not found.has_problems, found.findings
    assert len(found.models) == len(repository.index())


@pytest.mark.parametrize(
    ("files", "code", "words", "line"),
    [
        ({"a/config.pbtxt": CONFIG}, "version-none", "no version folder", 0),
        ({"a/config.pbtxt": CONFIG, "a/v1/model.py": ""}, "version-none", "its folders are v1", 0),
        ({"a/config.pbtxt": CONFIG, "a/1/modle.py": ""}, "file-missing", "model.py is missing; there is modle.py", 0),
        (model("a", CONFIG + "max_batch: 3"), "config-refused", "no field 'max_batch'", 4),
        (model("a", 'name: "b"\n' + CONFIG), "config-refused", 'has name: "b", expected "a"', 0),
        (model("a", CONFIG + "version_policy { specific { versions: [ 1, 7 ] } }"), "version-missing", "7", 4),
    ],
)
def test_files_that_prevent_loading(check: Check, files: dict[str, str], code: str, words: str, line: int) -> None:
    (found,) = check(files)
    assert found.code == code
    assert words in found.what
    assert found.line == line


@pytest.mark.parametrize(("name", "mend"), [("net.onnx", ", or set default_model_filename to the"), ("client.py", ".")])
def test_only_a_file_of_the_same_kind_may_be_the_models(check: Check, name: str, mend: str) -> None:
    (found,) = check({"a/config.pbtxt": CONFIG.replace("python", "onnxruntime"), f"a/1/{name}": ""})
    assert found.code == "file-missing"
    assert found.mend.startswith(f"Put model.onnx there{mend}")


def test_a_configuration_that_cannot_be_parsed_comes_first(check: Check) -> None:
    first, second = check({"a/config.pbtxt": CONFIG + "dims :\n}"})
    assert (first.code, first.line, second.code) == ("config-refused", 4, "version-none")


def test_file_names_of_unknown_backends_are_not_checked(check: Check) -> None:
    config = CONFIG.replace("python", "fastertransformer") + 'default_model_filename: "gpt"\n'
    assert "file-missing" not in codes(check({"a/config.pbtxt": config, "a/1/config.ini": ""}))


def test_a_pointer_of_git_lfs(check: Check) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n"
    (found,) = check({**model("a"), "a/1/weights.pt": pointer})
    assert (found.code, found.severity) == ("file-lfs-pointer", "error")


def test_a_folder_that_is_no_model_is_told_among_models_only(check: Check) -> None:
    found = check({**model("a"), "scripts/run.sh": ""})
    assert codes(found) == ["folder-no-model"]


def test_code_is_not_run(check: Check, tmp_path: Path) -> None:
    check(model("a", CONFIG, f"open({str(tmp_path / 'run')!r}, 'w')\nraise SystemExit"))
    assert not (tmp_path / "run").exists()


def test_names_of_models_choose(findings: Callable[..., Findings]) -> None:
    files = {**model("a"), **model("b", CONFIG + "x: 1")}
    assert (findings(files, "a").findings, findings(files, "b").models) == ((), ("b",))
    with pytest.raises(bls.ModelNotFoundError, match="'c'"):
        findings(files, "c")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {**model("good"), **model("bad", CONFIG + "x: 1")})
    assert (main(["check", str(tmp_path), "good"]), main(["check", str(tmp_path)])) == (0, 1)
    assert "no field 'x'" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "bad"), "--json"]) == 1
    found = Findings.from_dict(json.loads(capsys.readouterr().out))
    assert (found.models, [finding.code for finding in found.findings]) == (("bad",), ["config-refused"])


def test_misuse_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path)]) == 2
    assert "no models there" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["check"])
    assert stopped.value.code == 2


def test_lines_of_fields() -> None:
    text = """name: "a" # input: no
input [
  { name: "X", dims: [ 1,
      2 ] },
  { name: "Y" }
]
dynamic_batching { preferred_batch_size: [ 4, 8 ] default_queue_policy <
   max_queue_size: 3 > }
max_batch_size: 8
"""
    expected = {
        ("input", None): 2,
        ("input.name", "Y"): 5,
        ("input.dims", "2"): 4,
        ("max_batch_size", None): 9,
        ("dynamic_batching.preferred_batch_size", "8"): 7,
        ("dynamic_batching.default_queue_policy.max_queue_size", None): 8,
    }
    lines = lines_of(text)
    assert {(field, value): lines[tuple(field.split(".")), value] for field, value in expected} == expected
    assert (("nowhere",), None) not in lines


def test_a_project_is_checked_by_the_repository_that_it_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "one" / "deep" / "models", model("m"))
    assert main(["check", str(tmp_path / "one")]) == 0
    assert "1 model checked" in capsys.readouterr().out
    write(tmp_path / "two", model("m"))
    assert main(["check", str(tmp_path)]) == 2
    assert "contains 2 model repositories" in capsys.readouterr().err


def test_a_source_that_is_too_long_ends_no_check(
    findings: Callable[..., Findings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_scope, "_MOST_VISITED", 10_000)
    found = findings({**model("short"), **model("long", source="x = 1\n" * 1000 + MODEL)}).findings
    assert [(f.model, f.code) for f in found] == [("long", "check-failed")]
    assert "too long to be analyzed" in found[0].what


def test_a_cell_that_failed_is_reported_with_the_reason_of_its_failure() -> None:
    with bls.ModelRepository() as repository:
        with pytest.raises(bls.ModelLoadError):
            repository.define("broken", "import no_such_package\n" + MODEL, CONFIG)
        (found,) = bls.check(repo=repository).findings
    assert (found.model, found.code) == ("broken", "cell-failed")
    assert "no_such_package" in found.what
