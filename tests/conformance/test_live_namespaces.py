"""Model namespaces: a server answers as it did when `tests/network/namespaces.json` was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bls_notebook.shipping.servers.server_programs import ServerEnvironment
from bls_notebook.shipping.servers.tritonserver import TritonServer
from tests.network.namespaces import RECORDED, comparable, requests, write_folders

pytestmark = pytest.mark.triton


def test_folders_are_namespaces(environment: ServerEnvironment, tmp_path: Path) -> None:
    first, *others = write_folders(tmp_path)
    options = ["--model-namespacing=true", *(f"--model-repository={folder}" for folder in others)]
    answers = []
    with TritonServer(first, environment=environment, options=options) as server:
        for method, path, body in requests():
            answer = server.send(method, path, () if body is None else [json.dumps(body).encode()])
            answers.append([method, path, *comparable(path, answer.status, bytes(answer.body), tmp_path)])
    assert answers == json.loads(RECORDED.read_text())
