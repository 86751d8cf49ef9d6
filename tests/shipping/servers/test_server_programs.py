"""Making the server's environment, with an interpreter that only pretends to install."""

from __future__ import annotations

import json
import os
import platform
import sys
import textwrap
from pathlib import Path

import pytest

from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.operations import perform
from bls_notebook.shipping.servers import server_programs as environments
from bls_notebook.shipping.servers.server_programs import (
    ServerEnvironment,
    TritonServerError,
    default_environment_folder,
    make_environment,
)
from tests.shipping.fake_tritonserver import linux, wait_gone


def test_the_folder_is_in_the_users_cache_or_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BLS_NOTEBOOK_TRITON_ENV", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_environment_folder() == tmp_path / "bls_notebook" / "tritonserver"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # not allowed there, so not heeded
    assert default_environment_folder() == Path.home() / ".cache" / "bls_notebook" / "tritonserver"
    monkeypatch.setenv("BLS_NOTEBOOK_TRITON_ENV", str(tmp_path / "mine"))
    assert default_environment_folder() == tmp_path / "mine"


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "aarch64")])
def test_other_systems_are_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system: str, machine: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(TritonServerError, match=rf"^tritonserver runs on Linux x86-64 only, .*{machine}") as caught:
        make_environment(tmp_path / "env")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, BLSError)
    assert not (tmp_path / "env").exists()


class FakeEnvironment:
    def __init__(self, folder: Path, pip: str = "exit 0", version: str = "3.11") -> None:
        self.folder, self.calls_file = folder, folder / "calls"
        site, libraries = folder / "site", folder / "lib"
        wheel = site / "pytriton" / "tritonserver"
        for part in ("bin/tritonserver", "backends/python/backend.so", "caches/local/cache.so"):
            (wheel / part).parent.mkdir(parents=True)
            (wheel / part).write_text(part)
        stub = wheel / "python_backend_stubs" / "3.11" / "triton_python_backend_stub"
        stub.parent.mkdir(parents=True)
        stub.write_text("stub")
        libraries.mkdir()
        (libraries / "libpython3.11.so.1.0").touch()
        (folder / "bin").mkdir()
        facts = json.dumps([version, str(site), str(libraries)])
        script = f"""\
            #!/bin/sh
            echo "$*" >> {self.calls_file}
            case "$*" in
              "-m pip --version") exit 0;;
              "-m pip install"*) {pip};;
              "-c "*) echo '{facts}';;
            esac
            """
        (folder / "bin" / "python3").write_text(textwrap.dedent(script))
        (folder / "bin" / "python3").chmod(0o755)

    def installs(self) -> list[str]:
        calls = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line for line in calls if line.startswith("-m pip install")]


@linux
def test_an_environment_is_made_once(tmp_path: Path) -> None:
    fake = FakeEnvironment(tmp_path)
    said: list[str] = []
    made = make_environment(tmp_path, progress=said.append)
    assert len(said) == 1
    assert [line.split()[-1] for line in fake.installs()] == [environments.WHEEL, environments.NUMPY]
    assert "--no-deps" in fake.installs()[0]
    assert os.access(made.server / "bin" / "tritonserver", os.X_OK)
    assert (made.server / "backends" / "python" / "triton_python_backend_stub").read_text() == "stub"
    assert (made.server / "caches" / "local" / "cache.so").exists()

    assert make_environment(tmp_path, progress=said.append) == made
    assert (len(said), len(fake.installs())) == (1, 2)

    make_environment(tmp_path, ["scikit-learn"], progress=said.append)
    make_environment(tmp_path, ["scikit-learn"])
    assert len(fake.installs()) == 3
    assert fake.installs()[2].endswith(f"{environments.NUMPY} scikit-learn")  # still NumPy 1
    assert said[1] == "installing scikit-learn for models on tritonserver"


@linux
def test_ctrl_c_ends_a_command(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); os.kill({os.getpid()}, 2); "
    with pytest.raises(KeyboardInterrupt):
        perform(lambda: environments._run([sys.executable, "-c", script + "time.sleep(1000)"], "sleep"))
    wait_gone(int(file.read_text()))


@linux
def test_an_unfinished_environment_is_finished(tmp_path: Path) -> None:
    fake = FakeEnvironment(tmp_path, pip=f"[ -e {tmp_path}/online ] || exit 1")
    with pytest.raises(TritonServerError, match="cannot install"):
        make_environment(tmp_path)
    (tmp_path / "tritonserver-new" / "bin").mkdir(parents=True)  # as left by a copy that was killed
    (tmp_path / "tritonserver-new" / "bin" / "half").touch()
    (tmp_path / "online").touch()
    made = make_environment(tmp_path)
    assert len(fake.installs()) == 3
    assert not (made.server / "bin" / "half").exists()


@linux
@pytest.mark.parametrize("how", ["fails", "is interrupted", "is killed"])
def test_an_interrupted_installation_leaves_the_packages_as_they_were(tmp_path: Path, how: str) -> None:
    site = "lib/python3.11/site-packages"
    write = f"mkdir -p $(dirname $0)/../{site}/torch; echo half > $(dirname $0)/../{site}/torch/half"
    ends = {"fails": "exit 1", "is interrupted": f"kill -INT {os.getpid()}; sleep 60", "is killed": "exit 0"}[how]
    fake = FakeEnvironment(tmp_path)
    make_environment(tmp_path)
    script = (tmp_path / "bin" / "python3").read_text()
    (tmp_path / "bin" / "python3").write_text(script.replace("exit 0;;\n", f"{write}; {ends};;\n", 2))
    with pytest.MonkeyPatch.context() as patch:
        if how == "is killed":  # between the two renames

            def rename(self: Path, target: Path) -> Path:
                os.rename(self, target)
                raise SystemExit

            patch.setattr(Path, "rename", rename)
        error = {"fails": TritonServerError, "is interrupted": KeyboardInterrupt}.get(how, SystemExit)
        with pytest.raises(error):
            make_environment(tmp_path, ["torch"])
    (tmp_path / "bin" / "python3").write_text(script)
    made = make_environment(tmp_path)
    assert made.folder == tmp_path
    assert not list(tmp_path.rglob("half"))
    assert {"new", "lib-old"}.isdisjoint(os.listdir(tmp_path))
    assert (tmp_path / "lib" / "libpython3.11.so.1.0").exists()
    assert json.loads((tmp_path / environments.MARKER).read_text())["requirements"] == []
    fake.calls_file.unlink()
    make_environment(tmp_path, ["torch"])  # nothing counts as installed
    assert len(fake.installs()) == 1


@linux
def test_packages_that_were_lost_are_installed_again(tmp_path: Path) -> None:
    record = "lib/python3.11/site-packages/torch-2.0.dist-info/RECORD"
    place = f"$(dirname $0)/../{record}"
    fake = FakeEnvironment(tmp_path, pip=f"mkdir -p $(dirname {place}); touch {place}")
    make_environment(tmp_path, ["torch"])
    assert json.loads((tmp_path / environments.MARKER).read_text())["installed"] == ["torch-2.0"]
    (tmp_path / record).unlink()
    make_environment(tmp_path, ["torch"])
    assert (tmp_path / record).exists()
    assert len(fake.installs()) == 6


@linux
def test_without_network_the_error_is_one_line(tmp_path: Path) -> None:
    pip = (
        "echo 'WARNING: Retrying after connection broken'; "
        "echo 'ERROR: No matching distribution found for it' >&2; exit 1"
    )
    FakeEnvironment(tmp_path, pip=pip)
    with pytest.raises(TritonServerError) as caught:
        make_environment(tmp_path)
    assert str(caught.value) == (
        f"cannot install {environments.WHEEL}: No matching distribution found for it; "
        "pip needs the network, or a folder with the wheels in PIP_FIND_LINKS"
    )


@linux
def test_a_python_without_stub_or_library_is_named(tmp_path: Path) -> None:
    FakeEnvironment(tmp_path / "old", version="3.5")
    (tmp_path / "old" / "tritonserver").mkdir()
    with pytest.raises(TritonServerError, match=r"has no stub for Python 3\.5 .* Python 3\.10, 3\.11, 3\.12"):
        make_environment(tmp_path / "old")
    FakeEnvironment(tmp_path / "static")
    (tmp_path / "static" / "lib" / "libpython3.11.so.1.0").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ctypes.util.find_library", lambda name: None)
        with pytest.raises(TritonServerError, match=r"need libpython3\.11\.so\.1\.0, .* install libpython3\.11"):
            make_environment(tmp_path / "static")


@linux
def test_a_suitable_python_is_found_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environments, "PYTHONS", ("2.6", "2.7"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TritonServerError, match=r"need Python 2\.6 or 2\.7; this is 3\.\d+, and PATH has none"):
        make_environment(tmp_path / "env")
    for version, status in (("2.7", 1), ("2.6", 0)):  # the newer one has no ensurepip
        (tmp_path / f"python{version}").write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / f"python{version}").chmod(0o755)
    assert environments._fitting_python() == str(tmp_path / "python2.6")


@linux
def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TritonServerError, match=r"cannot create the folder .*file.*: "):
        make_environment(tmp_path / "file")
    with pytest.raises(TritonServerError, match=r"cannot create a virtual environment: /no/such/python: No such file"):
        make_environment(tmp_path / "env", python="/no/such/python")


def test_the_servers_variables_lead_to_its_own_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.setenv("PATH", "usual")
    monkeypatch.setenv("LD_LIBRARY_PATH", "theirs")
    folder = Path("folder")
    variables = ServerEnvironment(folder, "3.11", Path("site"), Path("lib")).variables()
    assert variables["PATH"].split(os.pathsep) == [str(folder / "bin"), "usual"]
    assert variables["LD_LIBRARY_PATH"].split(os.pathsep)[1:] == ["lib", "theirs"]
    assert not [name for name in variables if name.startswith("PYTHON")]
