from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import allocation_log
from bls_notebook.lifetimes import owners as holders
from bls_notebook.lifetimes.owner_search import SearchRoot, text_of_path
from bls_notebook.lifetimes.owners import find_holders

TRACK = """\
import numpy as np
import bls_notebook as bls
with bls.track_memory() as lifetimes:
    {}
"""
ASK = 'bls.current_repository().infer("times", {"IN": np.ones(9, np.float32)})'


def left(cells: Any) -> dict[str, str]:
    lives = cells.shell.user_ns["lifetimes"].left_behind()
    return {holder.name: str(holder.remedy) for life in lives for holder in life.holders}


def test_a_variable(cells: Any) -> None:
    cells.model()
    assert cells(TRACK.format(f"answers = {{'one': [{ASK}]}}")).success
    assert left(cells) == {"answers['one'][0]": "del answers['one'][0]"}


def test_the_error_of_a_variable(cells: Any) -> None:
    cells.model()
    cells(f"""class Failed:
    error = None
failed = Failed()
def fail():
    answer = {ASK}
    raise ValueError""")
    attempt = "try:\n        fail()\n    except ValueError as error:\n        failed.error = error"
    assert cells(TRACK.format(attempt)).success
    assert left(cells) == {"failed.error (the traceback of its ValueError)": "del failed.error"}


def test_an_error_that_a_model_keeps_leads_to_no_variable_of_the_notebook(cells: Any) -> None:
    cells("""%%tritonmodel times --input "IN FP32 [-1]" --output "OUT FP32 [-1]"
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    error = None
    def execute(self, requests):
        try:
            raise ValueError
        except ValueError as error:
            self.error = error
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
""")
    ask = "get_ipython().run_line_magic('bls', 'times IN=[1.0] -q')"
    assert cells(f"import numpy as np\n{ask}").success
    assert cells(TRACK.format(f"large = np.ones(300_000)\n    {ask}")).success
    assert cells.shell.user_ns["lifetimes"].record.kept == ()


def test_the_output_history(cells: Any) -> None:
    cells.model()
    cells("import numpy as np; import bls_notebook as bls; track = bls.track_memory(); track.__enter__();")
    number = cells.shell.execution_count
    cells(ASK)
    cells("track.__exit__(None, None, None); lifetimes = track")
    found = left(cells)
    assert found[f"Out[{number}]"] == found["_"] == "%reset -f out"
    (life, *_) = cells.shell.user_ns["lifetimes"].left_behind()
    assert life.maker.cell == f"In [{number}]"


def test_a_model_is_let_go_by_a_reload(cells: Any) -> None:
    cells("""%%tritonmodel times --input "IN FP32 [-1]" --output "OUT FP32 [-1]"
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    kept = []
    def execute(self, requests):
        self.kept += requests
        outputs = [pb_utils.Tensor("OUT", r.inputs()[0].as_numpy() * 2) for r in requests]
        return [pb_utils.InferenceResponse([output]) for output in outputs]
""")
    assert cells(TRACK.format(f"x = {ASK}; del x")).success
    assert left(cells) == {"times.kept[0]": "%tritonrepo reload times"}


def test_nothing_stays_when_the_extension_is_unloaded(cells: Any) -> None:
    before = len(holders.providers)
    cells("%unload_ext bls_notebook")
    assert len(holders.providers) == before - 1
    assert allocation_log._cell == ""
    assert bls.current_repository().index() == []


MODEL = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.get_input_tensor_by_name(r, "IN")]) for r in requests]
"""
CONFIG = (
    'input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }] output [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]'
)


class Kept:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


item = object()


@pytest.mark.parametrize(
    ("way", "text", "deletable"),
    [
        ((lambda kept: (kept, kept.value, item))(Kept([1, item])), ".value[1]", True),
        ((lambda kept: (kept, kept.__dict__, kept.value, item))(Kept([item])), ".value[0]", True),
        ((lambda kept: (kept, item))(Slotted(item)), ".value", True),
        (({"a b": item}, item), "['a b']", True),
        (((1, item), item), "[1]", False),
        (({item}, item), " (in a set)", False),
        ((lambda kept: (kept, kept.__dict__, item))(SimpleNamespace(x=item)), ".x", True),
    ],
    ids=["attribute", "dict of attributes", "slot", "dict", "tuple", "set", "namespace"],
)
def test_a_way(way: tuple[Any, ...], text: str, deletable: bool) -> None:
    assert text_of_path(way) == (text, deletable)


def test_the_inside_of_a_response_has_no_name() -> None:
    with bls.ModelRepository() as repo:
        repo.define("echo", MODEL, CONFIG)
        answer = repo.infer("echo", {"IN": [1]})
    inside = answer._response
    assert text_of_path(([answer], answer, inside, inside._outputs)) == ("[0]", True)
    assert text_of_path(([answer], answer, vars(answer), inside, inside._outputs)) == ("[0]", True)


def test_a_variable_is_named_and_not_the_namespace_around_it() -> None:
    owner = np.zeros(3)
    kept = [owner]
    roots = [SearchRoot("variable", "module", {"__builtins__": {}, "kept": kept}), SearchRoot("variable", "kept", kept)]
    assert [holder.name for holder in find_holders({1: owner}, {}, roots)[1]] == ["kept[0]"]
