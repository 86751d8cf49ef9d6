"""Model namespaces: answers that a tritonserver 2.51 with `--model-namespacing=true` gave are those of the endpoint."""

import json
import urllib.error
import urllib.request

import pytest

import bls_notebook as bls
from bls_notebook.engine.errors import BLSError
from tests.network.namespaces import RECORDED, comparable, requests, write_folders

pytest.importorskip("grpc")


def answer_of(url, method, path, body):
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, method=method)) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_folders_are_namespaces_as_on_a_server(tmp_path):
    recorded = json.loads(RECORDED.read_text())
    with (
        bls.ModelRepository(write_folders(tmp_path), model_namespacing=True) as repo,
        bls.endpoint(repo, token="") as endpoint,
    ):
        answers = []
        for method, path, body in requests():
            status, answer = answer_of(endpoint.url, method, path, body)
            answers.append([method, path, *comparable(path, status, answer, tmp_path)])
        assert answers == recorded


CALLER = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "X")
        name = pb_utils.get_input_tensor_by_name(requests[0], "NAME").as_numpy()[0].decode()
        response = pb_utils.InferenceRequest("", 0, [x], ["Y"], name).exec()
        error = response.error().message() if response.has_error() else ""
        try:
            ready = str(pb_utils.is_model_ready(name))
        except pb_utils.TritonModelException as problem:
            ready = str(problem)
        text = pb_utils.Tensor("TEXT", np.array([error, ready], object))
        return [pb_utils.InferenceResponse([text])]
"""
CONFIG = """
input [{ name: "X" data_type: TYPE_FP32 dims: [1] }, { name: "NAME" data_type: TYPE_STRING dims: [1] }]
output { name: "TEXT" data_type: TYPE_STRING dims: [2] }
"""


def test_a_name_of_several_namespaces_is_ambiguous_for_bls_requests(tmp_path):
    folders = write_folders(tmp_path)
    with bls.ModelRepository(folders, model_namespacing=True) as repo:
        repo.define("caller", CALLER, CONFIG)
        assert repo.load("same").name == "same"
        for name in ("pipe", "pipe_b", "only_a"):
            repo.load(name)

        def call(name):
            return repo.infer("caller", {"X": [1], "NAME": [name]})["TEXT"].as_numpy().tolist()

        assert call("only_a") == [b"", b"True"]
        for text in call("same"):
            assert b"There are 2 identifiers of model 'same' in global map" in text
        for text in call(f"{folders[0]}::same"):  # a key is no name
            assert b"is not found" in text
        with pytest.raises(BLSError, match="There are 2 identifiers"):
            repo.config("same")
        rows = [row for row in repo.index() if row.name == "same"]
        assert [row.state for row in rows] == ["READY", "READY"]
        assert {row.source.rpartition("/")[0][-1] for row in rows} == {"a", "b"}
        names = [statistics.name for statistics in repo.statistics_records()]
        assert names.count("same") == 2
        line = f'nv_inference_request_success{{model="same",namespace="{folders[1]}",version="1"}}'
        repo.infer("pipe_b", {"X": [1]})
        assert f"{line} 1.0" in repo.metrics.text()


def test_without_namespaces_a_name_in_several_folders_is_an_error(tmp_path):
    with bls.ModelRepository(write_folders(tmp_path)) as repo:
        with pytest.raises(BLSError, match="is in 2 folders of the repository"):
            repo.load("same")
        assert {row.reason for row in repo.index() if row.name == "same"} == {
            "model appears in two or more repositories"
        }


def test_a_folder_that_gets_a_name_of_another_makes_it_ambiguous(tmp_path):
    folders = write_folders(tmp_path)
    with bls.ModelRepository(folders[:1], model_namespacing=True) as repo:
        repo.load("same")
        assert float(repo.infer("same", {"X": [1]})["Y"].as_numpy()[0]) == 2
        bls.extending.Host(repo).add_folder(folders[1])
        repo.load("same")
        assert "There are 2 identifiers" in repo.infer("same", {"X": [1]}).error.message()
        repo.unload("same")
        assert "is not found in global map" in repo.infer("same", {"X": [1]}).error.message()
