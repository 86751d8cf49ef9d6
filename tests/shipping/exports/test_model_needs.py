"""What a model needs besides its own files: an export includes it, refuses the model, or names it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.__main__ import main
from bls_notebook.engine.errors import BLSError
from bls_notebook.shipping.exports import model_files
from bls_notebook.shipping.exports.deployment import TARGETS, files_for, guide, refuse_target
from bls_notebook.shipping.exports.model_needs import CodeNeeds, code_needs
from bls_notebook.shipping.records import Exported

CONFIG = """\
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
"""
NAMES = "np = torch = keras = key = name = names = AutoModel = Path = importlib = builtins = None; WHERE = '/data'"
HEAD = "import os\nimport sys\nimport triton_python_backend_utils as pb_utils\n"
ECHO = f"""{HEAD}

class TritonPythonModel:
    def initialize(self, args):
        self.folder = args["model_repository"]
        INITIALIZE

    def execute(self, requests):
        EXECUTE
        tensors = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]) for x in tensors]
"""
LOADS = 'pb_utils.load_model(model_name="base")'


def code(execute: str = "pass", initialize: str = "pass") -> str:
    return ECHO.replace("INITIALIZE", initialize).replace("EXECUTE", execute)


def write(folder: Path, name: str, source: str = "", config: str = CONFIG, **files: str) -> Path:
    for path, text in {"config.pbtxt": config, "1/model.py": source or code(), **files}.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text)
    return folder / name


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write(tmp_path / "models", "base")
    return tmp_path / "models"


@pytest.fixture
def search_path() -> Iterator[None]:
    before, names = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    for name in set(sys.modules) - names:
        del sys.modules[name]


def exported(models: Path, *names: str, **options: object) -> Exported:
    with bls.ModelRepository(models) as repo:
        for name in names:
            repo.load(name)
        return bls.export(models.parent / "out", *names, repo=repo, **options)  # type: ignore[arg-type]


def needs(line: str, setup: str = NAMES) -> CodeNeeds:
    return code_needs(Path("/m/own"), "1/model.py", f"{HEAD}{setup}\n{code(line)}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("open('/data/w.bin')", "`/data/w.bin`, which is outside of its folder"),
        ("np.load(self.folder + '/../other/1/w.npy')", "`1/w.npy` of the folder of model `other`"),
        ("(Path(__file__).parents[2] / 'other' / 'w').read_text()", "`w` of the folder of model `other`"),
        ("os.path.join(os.path.dirname(__file__), '..', '..', '..', 'data', name)", "`/data/*`, which is outside"),
        ("torch.load(f'{WHERE}/{name}.pt')", "`/data/*.pt`, which is outside"),
        ("open('w.txt')", "`w.txt` in the working directory"),
        ("np.load('../w.npy')", "`../w.npy` in the working directory"),
        ("open(os.path.expanduser('~/w.txt'))", "which is outside of its folder"),
        ("os.environ['A'] + os.getenv('B') + os.environ.get('C', '')", "environment variables, `A`, `B`, `C`"),
        ("os.environ[self.name]", "an environment variable whose name it computes"),
        ("import __main__", "`__main__`: here it reaches the notebook's variables"),
        ("sys.modules['__main__'].factor", "`__main__`"),
        ("from builtins import factor", "`builtins.factor`"),
        ("x = factor", "it reads `factor`, which it does not define"),
        ("getattr(builtins, 'factor')", "`builtins.factor`"),
        ("get_ipython().user_ns['factor']", "`user_ns`: here it reaches the notebook's variables"),
        ("importlib.import_module(self.name)", "a module whose name it computes"),
        ("pb_utils.load_model(model_name=self.name)", "the name of a model to load"),
        ("pb_utils.InferenceRequest(model_name=self.name, inputs=[]).exec()", "the name of a callee"),
    ],
)
def test_a_need_is_named_with_its_line(line: str, words: str) -> None:
    (text, *_) = needs(line).lines
    assert words in text
    assert text.startswith("1/model.py, line 16: ")


@pytest.mark.parametrize(
    "line",
    [
        "open(os.path.join(self.folder, '1', 'w.txt'))",
        "(Path(__file__).parent.parent / 'w.txt').read_text()",
        "open('/dev/null'), open('/tmp/log', 'w'), '/v2/health', 'a/b'",
        "torch.hub.load('a/b', 'c'), AutoModel.from_pretrained('a/b'), ','.join(names)",
        "os.environ['A'] = '1'; os.environ['A']",
        "builtins.len, __name__ == '__main__', keras.models.load_model(name)",
        "[pb_utils.InferenceRequest(model_name=n, inputs=[]).exec() for n in ('a', 'b')]",
        "os.chdir(self.folder); open('w.txt')",
    ],
)
def test_files_inside_a_model_are_not_named(line: str) -> None:
    assert needs(line).lines == []


def test_names_of_models_are_evaluated() -> None:
    found = needs("pb_utils.load_model({'k': 'c', 'l': 'd'}[key])")
    assert (found.loads, found.controls, found.late) == ({"c", "d"}, True, False)
    found = needs("x = pb_utils.InferenceRequest(model_name=NAME + 'c', inputs=[])", "NAME = 'a' + 'b'")
    assert found.requested == {"abc"}
    own = "pb_utils.load_model('a', config='{}', files={'file:1/model.py': b''})"
    assert needs(own).loads == set()


def test_models_that_are_loaded_are_dependencies_of_every_target(models: Path) -> None:
    write(models, "loader", code(LOADS))
    write(models, "early", code(initialize=f"self.prepare()\n\n    def prepare(self):\n        {LOADS}"))
    record = exported(models, "loader")
    assert record.names == ("base", "loader")  # the server starts without base, as this process did
    assert record.server_options == ("--model-control-mode=explicit", "--load-model=loader")
    for target in set(TARGETS) - {"dynamo"}:
        (text,) = (
            t for name, t in files_for(target, record).items() if name in ("Dockerfile", "inferenceservice.yaml")
        )
        assert '"--model-control-mode=explicit", "--load-model=loader"]' in text
    assert "--model-repository=/models --model-control-mode=explicit --load-model=loader'" in guide(record)
    assert "loader uses pb_utils.load_model or unload_model, so the server must run with" in record.warnings[0]
    with pytest.raises(BLSError, match="Dynamo's worker has no option for it"):
        refuse_target("dynamo", 1, record)
    record = exported(models, "base", "early")
    assert record.server_options == ("--model-control-mode=explicit", "--load-model=base")
    assert "load it afterwards, with POST /v2/repository/models/early/load" in record.warnings[0]
    assert exported(models, "base").server_options == ()
    write(models, "kept", config=CONFIG + "response_cache { enable: true }")
    record = exported(models, "kept")
    assert record.server_options == ("--cache-config=local,size=16777216",)
    with bls.ModelRepository(
        models, rate_limit="execution_count", rate_limit_resources=["R:1:0", "S:2"],
        metrics_config={"histogram_latencies": "true"},
    ) as repo:  # fmt: skip
        repo.load("base")
        limited = bls.export(models.parent / "out", "base", repo=repo)
    resources = "--rate-limit-resource=R:1:0", "--rate-limit-resource=S:2"
    metrics = "--metrics-config=histogram_latencies=true"
    assert limited.server_options == ("--rate-limit=execution_count", *resources, metrics)
    with pytest.raises(BLSError, match="target dynamo: the repository was created with --rate-limit=execution_count"):
        refuse_target("dynamo", 1, limited)
    assert "kept has response_cache: a server keeps responses only with --cache-config" in record.warnings[0]


def test_modules_of_the_user_are_copied(models: Path, search_path: None) -> None:
    common = models.parent / "common"
    lesser = "try:\n    import no_such\nexcept ImportError:\n    K = 2\n"
    files = {"useful/__init__.py": "from lesser import K\n", "useful/k.json": "2", "lesser.py": lesser}
    write(common.parent, "common", **files)
    added = 'sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "..", "common"))\nimport useful\n'
    write(models, "user", HEAD + added + code())
    record = exported(models, "user")
    written = {p.relative_to(models.parent / "out/user").as_posix() for p in (models.parent / "out/user").rglob("*.*")}
    assert {"useful/__init__.py", "useful/k.json", "lesser.py", "1/model.py"} <= written
    assert [pair[1] for pair in record.copied] == ["useful", "lesser"]
    assert not record.unknown
    assert "module useful was copied from" in "\n".join(record.warnings)
    with bls.ModelRepository(models.parent / "out") as again:
        sys.path.remove(next(path for path in sys.path if path.endswith("common")))
        again.load("user")
    with bls.ModelRepository() as cells, pytest.MonkeyPatch.context() as patch:  # beside the notebook
        patch.chdir(common)
        patch.syspath_prepend("")
        source = (models / "user/1/model.py").read_text().replace(added, "import useful\n")
        assert (
            "only in the notebook's folder"
            in cells.define(
                "cell", source, (models / "user/config.pbtxt").read_text().replace("user", "cell")
            ).warnings[0]
        )
        bls.export(models.parent / "of_cell", "cell", repo=cells)
    assert {p.name for p in (models.parent / "of_cell/cell").iterdir()} >= {"useful", "lesser.py"}
    write(models, "lacks", code("import no_such_module"))
    record = exported(models, "lacks")
    assert record.unknown == (("lacks", "1/model.py, line 12", "no_such_module", ""),)
    assert "line 12: `no_such_module` is not installed here: copy it into the model's folder" in record.warnings[0]


def test_secrets_are_left_out_and_named(models: Path) -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    more = {".env": "A=1", "1/id_rsa": "", "1/.git/config": "", "1/deploy.pem": key, "1/w.txt": "w"}
    write(models, "base", **more, **{"1/.env.example": "A="})
    record = exported(models, "base")
    assert sorted(record.secrets) == [f"base/{name}" for name in sorted(more) if name != "1/w.txt"]
    assert record.models[0].files == 4
    assert "left out as secret or of version control: base/.env, " in record.warnings[0]
    assert exported(models, "base", secrets=True).models[0].files == 8


def test_parameters_that_are_paths_are_named(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "EXECUTION_ENV_PATH": "$$TRITON_MODEL_DIRECTORY/env.tar.gz", "here": str(tmp_path), "gone": "/opt/gone",
        "near": "data/w.bin", "word": "models", "own": "$$TRITON_MODEL_DIRECTORY/1/model.py",
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pairs = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in values.items()]
    write(models, "base", config="\n".join([CONFIG, *pairs]))
    write(tmp_path, "data", **{"w.bin": ""})
    told = "\n".join(exported(models, "base").needs)
    assert "no such file, and the server cannot load the model without it: add it" in told
    assert f"`here` is `{tmp_path}`, a path outside of the model's folder here, which is not exported" in told
    assert "`gone` is `/opt/gone`: if that is a path, the server needs it" in told
    assert "`near` is `data/w.bin`, a path in the working directory here" in told
    assert not {"`word`", "`own`"}.intersection(told.split())


def test_requirements_say_what_they_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork = {"url": "https://x/f", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    folder = {"url": "file:///mine", "dir_info": {"editable": True}}
    origins = {"built": ("1.0+cpu", None), "forked": ("2.0", fork), "mine": ("3.0", folder)}
    for name, (version, origin) in origins.items():
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        if origin is not None:
            (info / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(model_files, "installed_distributions", lambda: {name: [name] for name in (*origins, "numpy")})
    assert model_files.packages_of("built") == {
        "built==1.0": "built is 1.0+cpu here: package indexes may not have that build"
    }
    assert model_files.packages_of("forked") == {"forked @ git+https://x/f@abc": ""}
    assert model_files.packages_of("mine") is None
    (remark,) = (model_files.packages_of("numpy") or {}).values()
    assert remark.endswith("but Triton's images install NumPy 1 for their Python backend")


def test_one_model_that_does_not_load_stops_the_others_only_without_the_option(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(models, "broken", code(initialize="raise ValueError('no weights')"))
    write(models, "bound", "import bls_notebook\n" + code())
    command = ["export", str(models), str(models.parent / "out"), "--json"]
    assert main(command) == 2
    assert "no weights" in capsys.readouterr().err
    assert main([*command, "--keep-going"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [model["name"] for model in record["models"]] == ["base"]
    reasons = dict(record["failed"])
    assert "no weights" in reasons["broken"]
    assert "it imports bls_notebook" in reasons["bound"]
    assert main([*command[:3], "broken", "--keep-going"]) == 2
