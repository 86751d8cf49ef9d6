"""Tests of a user's models, sent to a real tritonserver in place of this process."""

from __future__ import annotations

import asyncio
import unittest
from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.shipping.servers.server_programs import ServerEnvironment
from bls_notebook.testing import RepositoryUnderTest
from bls_notebook.testing.triton_servers import Servers
from tests.shipping.conftest import real_environment
from tests.testing.conftest import CONFIG, write_models

__all__ = ["real_environment"]

pytestmark = pytest.mark.triton
WHOLE = f"""
platform: "ensemble" {CONFIG}
ensemble_scheduling {{ step {{
  model_name: "double" model_version: -1
  input_map {{ key: "X" value: "X" }} output_map {{ key: "Y" value: "Y" }}
}} }}
"""
X = {"X": np.arange(3, dtype=np.float32)}


def test_requests_go_to_one_server_for_all_tests_of_the_same_models(
    tmp_path: Path, real_environment: ServerEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)  # where no first snapshot is written
    write_models(tmp_path / "models")
    (tmp_path / "models" / "whole" / "1").mkdir(parents=True)
    (tmp_path / "models" / "whole" / "config.pbtxt").write_text(WHOLE)
    servers, answers, processes = Servers(), [], set()
    try:
        for _ in range(2):
            with RepositoryUnderTest(tmp_path / "models", here=tmp_path, servers=servers) as repo:
                repo.assert_answer(repo.infer("whole", X), {"Y": [0, 2, 4]})
                with pytest.warns(UserWarning, match="1 request went to a tritonserver"), bls.record():
                    answers.append(repo.infer("double", X))
                answers.append(asyncio.run(repo.infer_async("double", X)))
                repo.assert_same_answers("a.json", *answers[-2:])
                failed = repo.infer("double", {"X": np.zeros(9, np.float32)})
                assert failed.error is not None
                assert "too long" in failed.error.message()
                for told, ask in (
                    ("cannot be stubbed", lambda repo=repo: repo.stub("double")),
                    ("a server does not report", lambda repo=repo: repo.assert_called("double")),
                    ("a server does not report", lambda repo=repo: repo.assert_peak("1 MB")),
                    ("a server has no option", lambda repo=repo: repo.infer("double", X, trace=True)),
                ):
                    with pytest.raises(unittest.SkipTest, match=told):
                        ask()
                assert "sent no requests" not in repo.failure_text()
                processes |= {prover.server.pid for _, prover in servers._kept.values()}
                assert {span.device for span in repo.session.spans} <= {"remote"}
        assert len(processes) == 1
    finally:
        servers.close()
    with RepositoryUnderTest(tmp_path / "models", here=tmp_path) as repo:
        repo.assert_same_answers("a.json", repo.infer("double", X), answers[-1])
        assert isinstance(answers[0], bls.Response)
        repo.assert_answer(answers[0], {"Y": [0, 2, 4]})
