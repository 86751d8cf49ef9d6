"""Folders of strangers: whatever they contain, `check` and `try` end, report it, and continue with the other models."""

from __future__ import annotations

import io
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.__main__ import main
from bls_notebook.records import regular_file
from bls_notebook.records.regular_file import MAX_SOURCE, read_file
from bls_notebook.repository.source import model_folders
from bls_notebook.repository.versions_in_service import Service
from tests.checking.conftest import CONFIG, MODEL, execute, model, write
from tests.trying.conftest import time_limits_pass_when_asked

ESCAPES = "z\x1b[2K\rnothing runs \x9b\u202e"
STEP = '{model_name:"%s" model_version:-1 input_map{key:"IN" value:"%s"} output_map{key:"OUT" value:"%s"}}'


def _sparse(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(MAX_SOURCE + 1)


def _zero(file: Path) -> None:
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize("place", ["1/model.py", "1/helper.py", "1/model.onnx", "config.pbtxt"])
@pytest.mark.parametrize("make", [os.mkfifo, _sparse, _zero])
def test_files_that_are_none_and_endless_ones_are_not_read(
    place: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path, {**model("good"), **model("odd", source="import helper\n")})
    file = tmp_path / "odd" / place
    file.unlink(missing_ok=True)
    make(file)
    with pytest.raises(OSError, match=r"expected at most|it is not a file"):
        read_file(file, MAX_SOURCE)
    with bls.ModelRepository(tmp_path) as repository:
        found = bls.check(repo=repository)
    assert found.models == ("good", "odd")
    if place != "config.pbtxt" and not (place.endswith("onnx") and make is _sparse):
        assert [f.what for f in found.findings if f.code == "file-unread"] != []
    repository, report = bls.try_repository(tmp_path, tell=lambda line: None)
    repository.close()
    assert {row.name: row.kind for row in report.models}["good"] == "real"


@pytest.mark.parametrize("verb", ["check", "try"])
def test_names_of_folders_change_no_terminal(
    verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [os.fsencode(ESCAPES), b"caf\xe9", b" a", b"a\nb"]
    for name in names:
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        write(folder, {path.partition("/")[2]: text for path, text in model("x").items()})
    write(tmp_path, model("fine"))
    assert main([verb, str(tmp_path)]) == 1
    output = "".join(capfd.readouterr())
    assert not [char for char in output if char != "\n" and not char.isprintable()]
    assert all(word in output for word in (r"\x1b[2K", r"caf\udce9", r"a\nb"))


def test_a_lattice_of_ensembles_loads_and_reloads_each_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = CONFIG.replace('backend: "python"', 'platform: "ensemble"')
    for i in range(12):
        steps = f"{STEP % (f'a{i + 1}', 'IN', 'M')}, {STEP % (f'b{i + 1}', 'M', 'OUT')}"
        config = io + f"ensemble_scheduling {{ step [{steps}] }}"
        for name in (f"a{i}", f"b{i}"):
            write(tmp_path, {f"{name}/config.pbtxt": config, f"{name}/1/x": ""})
    write(tmp_path, {**model("a12"), **model("b12")})
    loads: list[str] = []
    load = Service.load

    def counted(service: Service, source: object, *options: object) -> object:
        loads.append(source.name)  # type: ignore[attr-defined]
        return load(service, source, *options)  # type: ignore[arg-type]

    monkeypatch.setattr(Service, "load", counted)
    with bls.ModelRepository(tmp_path) as repository:
        assert bls.check(repo=repository).models
        repository.load("a0")
        assert len(loads) <= 3 * 25
        loads.clear()
        repository.reload("a12")
        assert sorted(loads) == sorted({*loads})
        assert loads[0] == "a12"
        assert loads[-1] == "a0"


def test_a_lattice_of_links_is_refused_and_the_other_models_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_folders, "_MOST_LINKED", 500)
    write(tmp_path, {**model("good"), **model("links")})
    for i in range(20):
        (tmp_path / "links" / f"{i}x").mkdir()
        for name in "ab":
            (tmp_path / "links" / f"{i}x" / name).symlink_to(f"../{i + 1}x", target_is_directory=True)
    (tmp_path / "links" / "20x").mkdir()
    with bls.ModelRepository(tmp_path) as repository:
        assert bls.check(repo=repository).models == ("good", "links")
        with pytest.raises(bls.BLSError, match="links lead to more than 500 folders"):
            repository.load("links")
        assert repository.load("good").state == "READY"


def test_a_file_without_data_yet_is_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Waiting(io.BytesIO):
        def read(self, _: int | None = -1) -> bytes:
            return None  # type: ignore[return-value]

        def fileno(self) -> int:
            return opened.fileno()

    with (tmp_path / "x").open("wb") as opened:
        monkeypatch.setattr(regular_file, "open_regular_file", lambda _: Waiting())
        assert read_file("x", 10) == b""


def test_a_deep_folder_is_refused_and_the_other_models_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    # Python before 3.13 cannot remove it.
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", str(tmp_path / "deep")], check=True))
    write(tmp_path, {**model("good"), **model("deep", source="import absent\n" + MODEL)})
    monkeypatch.chdir(tmp_path / "deep" / "1")
    for _ in range(1200):  # deeper than a path may name, and than Python's stack
        os.mkdir("d")
        os.chdir("d")
    monkeypatch.chdir(tmp_path)
    with bls.ModelRepository(tmp_path) as repository:
        found = bls.check(repo=repository)
        assert [(f.model, "more than 200 folders" in f.what) for f in found.findings] == [("deep", True)]
        with pytest.raises(bls.BLSError, match="more than 200 folders are in each other"):
            repository.load("deep")
        assert repository.load("good").state == "READY"
    repository, report = bls.try_repository(tmp_path, tell=lambda line: None)
    repository.close()
    assert {row.name: row.kind for row in report.models}["good"] == "real"


def test_long_configurations_name_the_line_of_each_template(tmp_path: Path) -> None:
    parameters = "".join(f'parameters {{ key: "k{i}" value: {{ string_value: "${{x}}" }} }}\n' for i in range(3000))
    dims = CONFIG.replace("[ -1 ]", f"[ {','.join(['9223372036854775807'] * 5000)} ]")
    write(tmp_path, {**model("long", CONFIG + parameters), **model("dims", dims), **model("deep", "a {" * 50_000)})
    with bls.ModelRepository(tmp_path) as repository:
        found = bls.check(repo=repository)
    assert next(f.line for f in found.findings if f.model == "long") == CONFIG.count("\n") + 1
    assert any("5,000 dims" in f.what for f in found.findings if f.model == "dims")
    assert next(f.code for f in found.findings if f.model == "deep") == "config-refused"


def test_hostile_models_do_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time_limits_pass_when_asked(monkeypatch)
    source = model("x")["x/1/model.py"]
    endless = "__import__('threading').main_thread().passes()\n        while True: pass"
    ends = source.replace("    def execute", f"    def initialize(self, args):\n        {endless}\n\n    def execute")
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    write(tmp_path, {
        **model("endless", source=ends), **model("good"), **model("deaf", source=deaf + ends),
        **model("vast", CONFIG.replace("-1", "9223372036854775807, 8")), **model("latin"),
        "pt/config.pbtxt": CONFIG.replace("python", "pytorch"), "pt/1/model.pt": "no archive",
        "self/config.pbtxt": CONFIG.replace('backend: "python"', 'platform: "ensemble"')
        + f"ensemble_scheduling {{ step [{STEP % ('self', 'IN', 'OUT')}] }}", "self/1/x": "",
        "folder/config.pbtxt": CONFIG, "folder/1/model.py/x": "",
    })  # fmt: skip
    (tmp_path / "latin/1/model.py").write_bytes(b"# caf\xe9\n" + source.encode())
    before = signal.getsignal(signal.SIGINT)
    with bls.ModelRepository(tmp_path) as repository:
        found = {finding.model: finding.code for finding in bls.check(repo=repository).findings}
    expected = {"latin": "code-syntax", "pt": "file-damaged", "self": "ensemble-misfit", "folder": "file-missing"}
    assert expected.items() <= found.items()
    try:
        repository, report = bls.try_repository(tmp_path, tell=lambda line: None, in_kernel=True)
    finally:
        signal.signal(signal.SIGINT, before)
    repository.close()
    rows = {row.name: row for row in report.models}
    assert not report.left
    assert rows["good"].asked
    assert not rows["vast"].asked
    assert "did not load" in rows["endless"].why
    assert "did not load" in rows["deaf"].why
    assert "circular dependency" in rows["self"].why
    assert all(rows[name].broken for name in ("self", "latin", "folder"))


QUOTES = '\\"' * 500_000


def _chained(assignment: str, last: str) -> str:
    """Return a source in which each of 60 names has two paths to the one before."""
    return execute("\n".join(['x0 = "a"', *(assignment.format(i, i + 1) for i in range(60)), last]))


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (f'{CONFIG}name: "{QUOTES}', "config-refused"),
        (f'{CONFIG}name: "{QUOTES}\xff', "config-refused"),
        (f'{{"{QUOTES}', "config-refused"),
        ("{" + "a" * 500_000, "config-refused"),
        (f'{CONFIG}name: "{"x" * 500_000}"', "config-refused"),
        (f'{CONFIG}default_model_filename: "a\\000b"', "config-refused"),
        (f'{CONFIG}default_model_filename: "{"x" * 500_000}"', "file-missing"),
    ],
    ids=["open quote", "open quote, not UTF-8", "JSON, open quote", "JSON, bare name", "long", "zero", "long file"],
)
def test_megabytes_of_a_configuration_are_read_once_and_quoted_in_part(config: str, code: str, tmp_path: Path) -> None:
    write(tmp_path, {**model("good"), **model("odd")})
    (tmp_path / "odd/config.pbtxt").write_bytes(config.encode("latin-1"))
    with bls.ModelRepository(tmp_path) as repository:
        result = bls.check(repo=repository)
    assert result.models == ("good", "odd")
    assert [finding.code for finding in result.findings] == [code]
    assert len(str(result)) < 5000
    repository, report = bls.try_repository(tmp_path, tell=lambda line: None)
    repository.close()
    assert {row.name: row.kind for row in report.models}["good"] == "real"
    assert len(str(report)) < 5000


@pytest.mark.parametrize(
    "source",
    [
        _chained("x{1} = x{0} + x{0}", "pb_utils.InferenceRequest(model_name=x60)"),
        _chained("x{1} = os.path.join(x{0}, x{0})", "open(x60)"),
        pytest.param(
            _chained("x{1} = x{0}\n" * 300, "pb_utils.InferenceResponse([x8])"), marks=pytest.mark.slow, id="tensors"
        ),
        execute("a = b\nb = c\nc = a + a\npb_utils.InferenceRequest(model_name=a)\np = os.path.join(p, p)\nopen(p)"),
        execute(f"from {'.' * 1000} import a"),
        "import " + ".".join("a" * 300_000),
        "#" * 500_000 + "\xff",
    ],
    ids=["sums", "paths", None, "cycles", "dots", "long import", "coding"],
)
def test_sources_with_exponential_paths_end(source: str, tmp_path: Path) -> None:
    write(tmp_path, {**model("good"), **model("odd")})
    (tmp_path / "odd/1/model.py").write_bytes(source.encode("latin-1"))
    with bls.ModelRepository(tmp_path) as repository:
        found = bls.check(repo=repository)
    assert found.models == ("good", "odd")
    assert {finding.model for finding in found.findings} <= {"odd"}
