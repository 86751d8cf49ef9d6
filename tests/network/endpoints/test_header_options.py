"""Headers that restricted protocols require, and those that are forwarded to models."""

from __future__ import annotations

import functools
import http.client
import importlib
import json
import re
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.utils

import bls_notebook as bls
from tests.repository.models import ECHOES
from tests.waiting import LIMIT

CONFIG = 'backend: "python" input [{name: "IN" data_type: TYPE_FP32 dims: [1]}] '
CONFIG += 'output [{name: "OUT" data_type: TYPE_FP32 dims: [1]}]'
PARAMETERS = ECHOES.replace("r.inputs()[0].as_numpy()", "np.array([r.parameters()], object)").replace(
    "import triton", "import numpy as np\nimport triton", 1
)
RESTRICTED = {
    "inference": "infer", "metadata": "get_server_metadata", "health": "is_server_live",
    "statistics": "get_inference_statistics", "model-config": "get_model_config",
    "model-repository": "get_model_repository_index", "shared-memory": "get_system_shared_memory_status",
}  # fmt: skip


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_restricted_protocols_and_forwarded_headers(protocol: str) -> None:
    text = 'backend: "python"\ninput [{name: "IN" data_type: TYPE_FP32 dims: [1]}]\n'
    text += 'output [{name: "OUT" data_type: TYPE_STRING dims: [1]}]'
    group = f"{','.join(RESTRICTED)}:Admin-Key=a b"
    kind, prefix = ("api", "") if protocol == "http" else ("protocol", "triton-grpc-protocol-")
    module = importlib.import_module(f"tritonclient.{protocol}")
    one = module.InferInput("IN", [1], "FP32")
    one.set_data_from_numpy(np.ones(1, np.float32))
    name = {"http": "http_restricted_api", "grpc": "grpc_restricted_protocol"}[protocol]
    options: dict[str, Any] = {
        name: [group],
        f"{protocol}_header_forward_pattern": {"http": "^MY-", "grpc": "(?-i)^my-"}[protocol],
    }
    with bls.ModelRepository() as repo:
        repo.define("m", PARAMETERS, text)
        with bls.endpoint(repo, token="", **options) as endpoint:
            url = endpoint.url.removeprefix("http://") if protocol == "http" else endpoint.grpc_url
            client = module.InferenceServerClient(url.removeprefix("grpc://"))
            for method in RESTRICTED.values():
                arguments = {"infer": ("m", [one]), "get_model_config": ("m",)}.get(method, ())
                call = functools.partial(getattr(client, method), *arguments)
                for headers in ({}, {f"{prefix}admin-key": "a"}):
                    if (method, protocol) == ("is_server_live", "http"):
                        assert not call(headers=headers)
                        continue
                    with pytest.raises(tritonclient.utils.InferenceServerException) as refusal:
                        call(headers=headers)
                    words = f"This {'API' if kind == 'api' else kind} is restricted, expecting header"
                    assert f"{words} '{prefix}Admin-Key'" in refusal.value.message()
                    assert refusal.value.status() in ("403", "StatusCode.UNAVAILABLE")
                call(headers={f"{prefix}admin-key": "a b"})
            headers = {f"{prefix}admin-key": "a b", "my-one": "1", "not-my-two": "2"}
            answer = client.infer("m", [one], headers=headers, parameters={"x": 3})
            assert json.loads(answer.as_numpy("OUT")[0]) == {"my-one": "1", "x": 3}
            client.close()
        option = f"--{protocol}-restricted-{kind}"
        for value, problem in {
            "health": f"{option} option format is '<config name>:<setting>=<value>'. Got health",
            "helth:a=b": f"unknown restricted {kind} 'helth'",
            "health,health:a=b": f"restricted {kind} 'health' can not be specified in multiple config groups",
        }.items():
            with pytest.raises(bls.BLSError, match=f"^{re.escape(problem)}"):
                bls.endpoint(repo, **{name: [value]})
        with pytest.raises(bls.BLSError, match=f"--{protocol}-header-forward-pattern: invalid"):
            bls.endpoint(repo, **{f"{protocol}_header_forward_pattern": "("})


@pytest.mark.parametrize("name", ["sequence_id", "binary_data_output", "triton_x"])
def test_headers_that_triton_reserves_are_not_forwarded(name: str) -> None:
    with bls.ModelRepository() as repo:
        repo.define("m", ECHOES, CONFIG)
        tensor = {"name": "IN", "shape": [1], "datatype": "FP32", "data": [1]}
        options = {"http_header_forward_pattern": ".*", "grpc_header_forward_pattern": "^[st]"}
        with bls.endpoint(repo, token="", **options) as endpoint:
            connection = http.client.HTTPConnection("127.0.0.1", endpoint.http_port, timeout=LIMIT)
            connection.request("POST", "/v2/models/m/infer", json.dumps({"inputs": [tensor]}), {name: "x"})
            answer = connection.getresponse()
            words = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
            assert (answer.status, json.loads(answer.read())["error"]) == (400, words)
            connection.close()
            client = tritonclient.grpc.InferenceServerClient(endpoint.grpc_url)
            one = tritonclient.grpc.InferInput("IN", [1], "FP32")
            one.set_data_from_numpy(np.ones(1, np.float32))
            if name == "binary_data_output":  # the pattern does not match it
                client.infer("m", [one], headers={name: "x"})
            else:
                with pytest.raises(tritonclient.utils.InferenceServerException, match=re.escape(words)):
                    client.infer("m", [one], headers={name: "x"})
            client.close()
