"""``%tritonrepo endpoint`` and ``python -m bls_notebook endpoint``."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.waiting import LIMIT

SAMPLES = Path(__file__).parents[2] / "model_repository"


BROKEN = """\
%%tritonmodel broken --input "IN INT32 [1]" --output "OUT INT32 [1]"
class TritonPythonModel:
    def execute(self, requests):
        return 1 // 0
"""
BODY = b'{"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}'


def ready(url: str, headers: dict[str, str]) -> bool:
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v2/health/ready", headers=headers)) as answer:
        return bool(answer.status == 200)


def test_the_magic(cells) -> None:
    assert "no endpoint runs" in cells("%tritonrepo endpoint --stop").stderr
    cells(f"%tritonrepo use {SAMPLES}")
    cells("%tritonrepo load add_sub")
    try:
        first = cells("%tritonrepo endpoint").value
        assert ready(first.url, first.headers)
        cells(BROKEN)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.request.Request(f"{first.url}/v2/models/broken/infer", BODY, first.headers))
        again = cells("%tritonrepo endpoint")
        assert again.value is first
        assert first.token in again.text
        assert "ZeroDivisionError" in again.text
        assert "%debug opens here" in again.text
        assert isinstance(sys.last_value, ZeroDivisionError)
        second = cells("%tritonrepo endpoint --token mine").value
        assert not first.running
        assert second.headers == {"authorization": "Bearer mine"}
        assert "expected a number" in str(cells("%tritonrepo endpoint --http-port 70000").error)
    finally:
        stopped = cells("%tritonrepo endpoint --no-token").value
        assert "STOPPED" in cells("%tritonrepo endpoint --stop").text
    assert not stopped.running


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    model = shutil.copytree(SAMPLES / "add_sub", tmp_path / "add_sub") / "1" / "model.py"
    model.write_text('import sys\nassert sys.argv == [""]  # as on a server\n' + model.read_text())
    command = [sys.executable, "-m", "bls_notebook", "endpoint", str(tmp_path), "add_sub", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        told = json.loads(line)
        assert [model["name"] for model in told["models"] if model["state"] == "READY"] == ["add_sub"]
        assert ready(told["http"], {"authorization": f"Bearer {told['token']}"})
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
