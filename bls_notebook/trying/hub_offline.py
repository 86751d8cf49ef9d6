"""Load models without Hugging Face's hub: fail fast if it is unreachable, and replace missing tokenizers.

The hub's libraries retry for half a minute; HF_HUB_OFFLINE prevents that. Pipelines that call a language model
often fetch its tokenizer when they load; a tokenizer of single bytes replaces it, so that the pipeline's own code
runs. Guarantees: available tokenizers are not replaced; responses that used a replacement name it in `stubs`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bls_notebook.engine import Execution, caller_var
from bls_notebook.records import Stubbed

_PATIENCE = 3.0  # seconds to wait for a connection
_VARIABLE = "HF_HUB_OFFLINE"
# Modules and attributes in which the hub's libraries cache the variable.
_CACHED_FLAGS = (("huggingface_hub.constants", _VARIABLE), ("transformers.utils.hub", "_is_offline_mode"))
_ASKS = re.compile(
    r"\bfrom_pretrained\b|\bhf_hub|\bsnapshot_download\b"
    r"|\b(import|from) +(huggingface_hub|transformers|sentence_transformers|diffusers|faster_whisper|open_clip|timm)\b"
)


def uses_hub(source: str) -> bool:
    """Return whether source code probably fetches from the hub."""
    return _ASKS.search(source) is not None


@contextmanager
def offline_if_unreachable(wanted: bool) -> Iterator[str]:
    """Set HF_HUB_OFFLINE in a ``with`` if the hub is unreachable.

    Yields a note, empty if no model fetches (`wanted`), the hub is reachable, or the user set the variable.
    """
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname or ""
    proxied = any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ)  # a connection proves nothing
    wanted = wanted and _VARIABLE not in os.environ and not proxied
    with suppress(OSError):
        if wanted:
            socket.create_connection((host, 443), _PATIENCE).close()
            wanted = False
    with _offline(wanted):
        note = f"{host} is unreachable: models loaded with {_VARIABLE}=1, which fetches nothing from it"
        yield note if wanted else ""


@contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    if not wanted or _VARIABLE in os.environ:
        yield
        return
    os.environ[_VARIABLE] = "1"
    _set_offline(True)
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
        _set_offline(False)


def _set_offline(offline: bool) -> None:
    for module, name in _CACHED_FLAGS:
        if hasattr(sys.modules.get(module), name):
            setattr(sys.modules[module], name, offline)


log = logging.getLogger("bls_notebook")

# Special tokens, model families with another limit than 512 tokens, and a template of chats.
_DATA = json.loads(Path(__file__).with_name("byte_tokenizer.json").read_text("utf-8"))
_FEWEST = 64  # tokens; a tokenizer with fewer was created without its files
_USES = ("__call__", "encode", "tokenize", "decode", "batch_decode", "apply_chat_template")


_replaced: set[str] = set()  # tokenizers that a model of this process got as bytes: its next loads get the same
_missing: list[str] | None = None  # those of the present load, inside `byte_tokenizers`


@contextmanager
def byte_tokenizers(wanted: bool) -> Iterator[list[str]]:
    """Replace unavailable tokenizers of `transformers` in a ``with``, and in later loads of models that use them.

    Yields the list of their names. Does nothing unless `wanted`, because importing the package takes seconds.
    """
    global _missing
    found = list[str]()
    if wanted and importlib.util.find_spec("transformers") is not None:
        try:
            transformers = importlib.import_module("transformers")
            for owner in (transformers.PreTrainedTokenizerBase, transformers.AutoTokenizer):
                method = vars(owner).get("from_pretrained")
                if method is not None and not hasattr(method.__func__, "replaces"):
                    owner.from_pretrained = classmethod(_or_bytes(method.__func__))
        except Exception as error:  # the model will report the same error
            log.debug("tokenizers of transformers cannot be replaced: %s", error)
        _missing = found
    try:
        yield found
    finally:
        _missing = None


def _or_bytes(fetch: Callable[..., Any]) -> Callable[..., Any]:
    def from_pretrained(cls: type, name: Any, *arguments: Any, **options: Any) -> Any:
        key, is_again = os.fspath(name), caller_var.get() is not None and _missing is None
        if _missing is None and not (is_again and key in _replaced):
            return fetch(cls, name, *arguments, **options)
        with suppress(Exception), _offline(is_again):  # OSError in most versions
            tokenizer = fetch(cls, name, *arguments, **options)
            if len(tokenizer) >= _FEWEST:
                _replaced.discard(key)
                return tokenizer
        _replaced.add(key)
        if _missing is not None:
            _missing.append(key)
        return byte_tokenizer(key, cls.__name__)

    from_pretrained.replaces = fetch  # type: ignore[attr-defined]
    return from_pretrained


def byte_tokenizer(name: str, family: str) -> Any:
    """Return a tokenizer of `transformers` with a token per byte, and the length limit of the class `family`.

    Responses of models that use it name it among their stubs.
    """
    transformers = importlib.import_module("transformers")
    tokenizers = importlib.import_module("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    core = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    longest = next((length for part, length in _DATA["lengths"].items() if part in f"{family} {name}".lower()), 512)
    uses = {use: _marked(getattr(transformers.PreTrainedTokenizerFast, use), name) for use in _USES}
    kind = type("ByteTokenizer", (transformers.PreTrainedTokenizerFast,), uses)
    return kind(tokenizer_object=core, model_max_length=longest, chat_template=_DATA["chat"], **_DATA["special"])


def _marked(use: Callable[..., Any], name: str) -> Callable[..., Any]:
    mark = (Stubbed(f"the tokenizer {name}"),)

    def marked(self: Any, *arguments: Any, **options: Any) -> Any:
        execution = caller_var.get()
        if isinstance(execution, Execution):
            execution.note_warnings(mark)
        return use(self, *arguments, **options)

    return marked
