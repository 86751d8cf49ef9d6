"""What pipelines fetch from a hub when they load: tokenizers are stood in for, and nobody waits in vain."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bls_notebook.trying import hub_offline
from bls_notebook.trying.observations import TOKENIZER
from tests.trying.conftest import DOUBLES, IO, PYTHON, calling, put

FETCHING = """
    def initialize(self, args):
        from transformers import AutoTokenizer
        self.there = AutoTokenizer.from_pretrained("there")
        self.gone = AutoTokenizer.from_pretrained("org/gone")

    def execute(self, requests):
        self.TOKENIZER("text")
"""
ONES = {"IN": np.ones(3, np.float32)}


def fetching(tokenizer: str) -> str:
    return calling("llm").replace("\n    def execute(self, requests):\n", FETCHING.replace("TOKENIZER", tokenizer))


class Vocabulary:
    """A tokenizer as those of transformers are, as far as loading one goes."""

    chat_template = ""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __len__(self) -> int:
        return 1000

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())

    encode = tokenize = decode = batch_decode = apply_chat_template = __call__

    @classmethod
    def from_pretrained(cls, name: str) -> Vocabulary:
        if name != "there":
            raise OSError("We couldn't connect to the hub")
        return Vocabulary()


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The parts of transformers and tokenizers that stand-ins are made of."""
    module = ModuleType("transformers")
    module.__spec__ = ModuleSpec("transformers", None)
    base = type("PreTrainedTokenizerBase", (Vocabulary,), {"from_pretrained": Vocabulary.__dict__["from_pretrained"]})
    auto = type("AutoTokenizer", (), {"from_pretrained": Vocabulary.__dict__["from_pretrained"]})
    made = {"PreTrainedTokenizerBase": base, "AutoTokenizer": auto, "PreTrainedTokenizerFast": Vocabulary}
    module.__dict__.update(made)
    parts = ModuleType("tokenizers")
    byte_level = type("ByteLevel", (), {"alphabet": staticmethod(lambda: "ab"), "__init__": lambda self, **_: None})
    parts.__dict__.update(
        Tokenizer=lambda model: SimpleNamespace(model=model),
        models=SimpleNamespace(BPE=lambda vocabulary, merges: vocabulary),
        pre_tokenizers=SimpleNamespace(ByteLevel=byte_level),
        decoders=SimpleNamespace(ByteLevel=byte_level),
    )
    monkeypatch.setitem(sys.modules, "transformers", module)
    monkeypatch.setitem(sys.modules, "tokenizers", parts)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return module


@pytest.mark.parametrize(("used", "stubs"), [("there", ("llm",)), ("gone", ("the tokenizer org/gone", "llm"))])
def test_a_tokenizer_that_cannot_be_had_is_stood_in_for(
    trying: Any, tmp_path: Path, transformers: Any, used: str, stubs: tuple[str, ...]
) -> None:
    put(tmp_path, "pipeline", PYTHON, {"1/model.py": fetching(used)})
    put(tmp_path, "llm", f'backend: "x" {IO}')
    repository, rows = trying()
    assert rows["pipeline"].kind == "real"
    assert rows["pipeline"].why == "a tokenizer of single bytes replaces org/gone, which is unavailable"
    answer = repository.infer("pipeline", ONES)
    assert answer.error is None
    assert answer.stubs == stubs
    repository.reload("pipeline")  # as a variant of the model, it gets the same tokenizer again
    assert repository.infer("pipeline", ONES).stubs == stubs
    if used == "gone":
        with pytest.raises(OSError):
            transformers.AutoTokenizer.from_pretrained("org/gone")  # outside models, nothing is replaced


@pytest.mark.parametrize(("family", "longest"), [("AutoTokenizer", 512), ("CLIPTokenizer", 77)])
def test_the_class_of_a_tokenizer_limits_its_length(transformers: Any, family: str, longest: int) -> None:
    kind = type(family, (), {})
    assert hub_offline.byte_tokenizer("org/stable-diffusion", kind, TOKENIZER).options["model_max_length"] == longest


def test_a_substitute_returns_what_the_class_of_the_tokenizer_returns(transformers: Any) -> None:
    names = ["input_ids", "token_type_ids", "attention_mask"]
    bert = type("BertTokenizer", (), {"model_input_names": names})
    assert hub_offline.byte_tokenizer("org/bert", bert, TOKENIZER).model_input_names == names


def test_a_model_that_calls_no_other_gets_a_substitute_too(trying: Any, tmp_path: Path, transformers: Any) -> None:
    own = DOUBLES.replace("    def execute(self, requests):\n", FETCHING.replace("TOKENIZER", "gone"))
    put(tmp_path, "words", PYTHON, {"1/model.py": own})
    repository, rows = trying()
    assert (rows["words"].kind, rows["words"].problem) == ("real", "")
    assert repository.infer("words", ONES).stubs == ("the tokenizer org/gone",)


def test_an_unreachable_hub_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower() in ("https_proxy", "all_proxy", "hf_hub_offline")]:
        monkeypatch.delenv(name)
    library = SimpleNamespace(HF_HUB_OFFLINE=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", library)  # type: ignore[arg-type]
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1")  # nobody listens at its port 443
    with hub_offline.offline_if_unreachable(True) as told:
        assert told.startswith("127.0.0.1 is unreachable")
        assert library.HF_HUB_OFFLINE
        assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert not library.HF_HUB_OFFLINE
    assert "HF_HUB_OFFLINE" not in os.environ
    for wanted, proxy in ((False, ""), (True, "http://127.0.0.1:1")):
        if proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy)
        with hub_offline.offline_if_unreachable(wanted) as told:
            assert not told
            assert "HF_HUB_OFFLINE" not in os.environ


def test_reasons_do_not_advise_to_change_what_the_trial_set(
    trying: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower() in ("https_proxy", "all_proxy", "hf_hub_offline")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1")  # nobody listens at its port 443
    advice = "Cannot reach the hub: offline mode is enabled. To disable it, please unset the `HF_HUB_OFFLINE` variable."
    raises = f"# snapshot_download\nraise OSError({advice!r})"
    put(tmp_path, "m", PYTHON, {"1/model.py": raises})
    assert trying()[1]["m"].why == "OSError: Cannot reach the hub"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert trying()[1]["m"].why == f"OSError: {advice}"


@pytest.mark.parametrize(
    ("source", "asks"),
    [("AutoModel.from_pretrained(x)", True), ("from huggingface_hub import x", True), ("def untrained(): ...", False)],
)
def test_sources_that_use_the_hub(source: str, asks: bool) -> None:
    assert hub_offline.uses_hub(source) is asks
