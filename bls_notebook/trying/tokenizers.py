"""Stand-ins for tokenizers that cannot be had: single bytes instead of their vocabulary.

Pipelines that call a language model often fetch its tokenizer from a hub when they load. Without network, or
without leave, none of their own code could be tried. Guarantees: a tokenizer that is there is used; what used
a stand-in says so, as for stubs of models.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bls_notebook.engine.core.execution import Execution
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.records.stubbed import Stubbed

log = logging.getLogger("bls_notebook")

_SPECIAL = {
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
    "cls_token": "<cls>", "sep_token": "<sep>", "mask_token": "<mask>",
}  # fmt: skip
_LENGTHS = {"siglip": 64, "clip": 77}  # of families whose longest text is not 512 tokens
_CHAT = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
_FEWEST = 64  # tokens; a vocabulary below that was made without its files
_USES = ("__call__", "encode", "tokenize", "decode", "batch_decode", "apply_chat_template")


@contextmanager
def byte_tokenizers(wanted: bool) -> Iterator[list[str]]:
    """Stand in for tokenizers of `transformers` that cannot be had, as long as this is open.

    It yields the names of those that were stood in for; none are where nobody would ask (`wanted`), for the
    package takes seconds to import.
    """
    missing: list[str] = []
    if not wanted or importlib.util.find_spec("transformers") is None:
        yield missing
        return
    try:
        transformers = importlib.import_module("transformers")
        holders = (transformers.PreTrainedTokenizerBase, transformers.AutoTokenizer)
        before = [holder.__dict__["from_pretrained"] for holder in holders]
    except Exception as error:  # what the model will stumble over itself
        log.debug("tokenizers of transformers cannot be stood in for: %s", error)
        yield missing
        return
    for holder, method in zip(holders, before, strict=True):
        holder.from_pretrained = classmethod(_or_bytes(method.__func__, missing))
    try:
        yield missing
    finally:
        for holder, method in zip(holders, before, strict=True):
            holder.from_pretrained = method


def _or_bytes(fetch: Callable[..., Any], missing: list[str]) -> Callable[..., Any]:
    def from_pretrained(cls: type, name: Any, *arguments: Any, **options: Any) -> Any:
        with suppress(Exception):  # OSError mostly, and what its versions make of that
            made = fetch(cls, name, *arguments, **options)
            if len(made) >= _FEWEST:
                return made
        missing.append(os.fspath(name))
        return byte_tokenizer(os.fspath(name))

    return from_pretrained


def byte_tokenizer(name: str) -> Any:
    """Return a tokenizer of `transformers` whose tokens are the 256 bytes, and a few special ones.

    Answers of models that use it carry the mark of a stub.
    """
    transformers = importlib.import_module("transformers")
    tokenizers = importlib.import_module("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    core = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    longest = next((length for family, length in _LENGTHS.items() if family in name.lower()), 512)
    uses = {use: _marked(getattr(transformers.PreTrainedTokenizerFast, use), name) for use in _USES}
    kind = type("ByteTokenizer", (transformers.PreTrainedTokenizerFast,), uses)
    return kind(tokenizer_object=core, model_max_length=longest, chat_template=_CHAT, **_SPECIAL)


def _marked(use: Callable[..., Any], name: str) -> Callable[..., Any]:
    mark = (Stubbed(f"the tokenizer {name}"),)

    def marked(self: Any, *arguments: Any, **options: Any) -> Any:
        execution = caller_var.get()
        if isinstance(execution, Execution):
            execution.note_warnings(mark)
        return use(self, *arguments, **options)

    return marked
