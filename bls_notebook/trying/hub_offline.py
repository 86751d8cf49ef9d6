"""Load models without Hugging Face's hub: fail fast if it is unreachable, and replace missing tokenizers.

The hub's libraries retry for half a minute; HF_HUB_OFFLINE prevents that. Pipelines that call a language model
often fetch its tokenizer when they load; a tokenizer of single bytes replaces it, so that the pipeline's own code
runs. Guarantees: available tokenizers are not replaced; responses that used a replacement name it in `stubs`. Workers
run this module, too: `begin`.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import socket
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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

_FEWEST = 64  # tokens; a tokenizer with fewer was created without its files
_USES = ("__call__", "encode", "tokenize", "decode", "batch_decode", "apply_chat_template")


_ask: Callable[[str], str]  # returns whether to replace a tokenizer: "try" the real one, "offline" the same, or ""
_note: Callable[[str, str], None]  # "replaced" or "used", and the name


def begin(arguments: Mapping[str, Any], note: Callable[[str, str], None]) -> None:
    """Replace tokenizers for the rest of the process: `names`, or all (None) that are unavailable."""
    names = arguments["names"]

    def ask(name: str) -> str:
        return "try" if names is None else "offline" if name in names else ""

    replace_unavailable(ask, note, arguments["data"])


def replace_unavailable(ask: Callable[[str], str], note: Callable[[str, str], None], data: Mapping[str, Any]) -> None:
    """Let `transformers` replace tokenizers, as `ask` and `note` above say; `data` is as for `byte_tokenizer`."""
    global _ask, _note
    _ask, _note = ask, note
    if importlib.util.find_spec("transformers") is None:
        return
    try:
        transformers = importlib.import_module("transformers")
        for owner in (transformers.PreTrainedTokenizerBase, transformers.AutoTokenizer):
            method = vars(owner).get("from_pretrained")
            if method is not None and not hasattr(method.__func__, "replaces"):
                owner.from_pretrained = classmethod(_or_bytes(method.__func__, data))
    except Exception as error:  # the model will report the same error
        log.debug("tokenizers of transformers cannot be replaced: %s", error)


def _or_bytes(fetch: Callable[..., Any], data: Mapping[str, Any]) -> Callable[..., Any]:
    def from_pretrained(cls: type, name: Any, *arguments: Any, **options: Any) -> Any:
        key = os.fspath(name)
        way = _ask(key)
        if not way:
            return fetch(cls, name, *arguments, **options)
        with suppress(Exception), _offline(way == "offline"):  # OSError in most versions
            tokenizer = fetch(cls, name, *arguments, **options)
            if len(tokenizer) >= _FEWEST:
                return tokenizer
        _note("replaced", key)
        return byte_tokenizer(key, cls, data)

    from_pretrained.replaces = fetch  # type: ignore[attr-defined]
    return from_pretrained


def byte_tokenizer(name: str, family: type, data: Mapping[str, Any]) -> Any:
    """Return a tokenizer of `transformers` with a token per byte, and the length limit and outputs of a class.

    `data` has its special tokens, model families with another limit than 512 tokens, and a template of chats. Responses
    of models that use it name it among their stubs.
    """
    transformers = importlib.import_module("transformers")
    tokenizers = importlib.import_module("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    core = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    longest = next(
        (length for part, length in data["lengths"].items() if part in f"{family.__name__} {name}".lower()), 512
    )
    uses = {use: _marked(getattr(transformers.PreTrainedTokenizerFast, use), name) for use in _USES}
    with suppress(AttributeError):  # `AutoTokenizer` has none
        uses["model_input_names"] = family.model_input_names  # type: ignore[attr-defined]
    kind = type("ByteTokenizer", (transformers.PreTrainedTokenizerFast,), uses)
    return kind(tokenizer_object=core, model_max_length=longest, chat_template=data["chat"], **data["special"])


def _marked(use: Callable[..., Any], name: str) -> Callable[..., Any]:
    def marked(self: Any, *arguments: Any, **options: Any) -> Any:
        _note("used", name)
        return use(self, *arguments, **options)

    return marked
