"""Triton's options about headers: those that restricted protocols require, and those that become parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bls_notebook.engine import BLSError
from bls_notebook.network.kserve.errors import refuse

_CATEGORIES = (
    "health", "metadata", "inference", "shared-memory", "model-config", "model-repository", "statistics", "trace",
    "logging",
)  # fmt: skip
_RESERVED = frozenset(
    ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output")
)
_WORDS = {  # of HTTP paths and gRPC methods; the first that matches decides
    "repository": "model-repository", "sharedmemory": "shared-memory", "infer": "inference", "generate": "inference",
    "trace": "trace", "log": "logging", "ready": "health", "live": "health", "check": "health",
    "config": "model-config", "stat": "statistics", "metrics": "", "": "metadata",
}  # fmt: skip


def category_of(name: str) -> str:
    """Return the category of an HTTP path or a gRPC method."""
    return next(category for word, category in _WORDS.items() if word in name.lower())


@dataclass(frozen=True)
class HeaderOptions:
    """The options of one protocol. `required`: the header and value of each restricted category."""

    required: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    pattern: re.Pattern[str] | None = None

    def missing(self, category: str, headers: Mapping[str, str | bytes]) -> str:
        """Return the header that a request to a restricted category lacks; "" for other requests."""
        if category not in self.required:
            return ""
        header, value = self.required[category]
        return "" if headers.get(header.lower()) in (value, value.encode()) else header

    def parameters(self, headers: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
        """Return the headers that a request forwards to its model; ProtocolError for a name that Triton reserves."""
        if self.pattern is None:
            return {}
        found = {name: value for name, value in headers if self.pattern.search(name)}
        for name in found:
            if name in _RESERVED or name.startswith("triton_"):
                refuse(f"Header '{name}' is reserved for Triton usage and cannot be forwarded.")
        return {name: v.decode("latin-1") if isinstance(v, bytes) else v for name, v in found.items()}


def header_options(protocol: str, groups: Sequence[str], pattern: str) -> HeaderOptions:
    """Return the options of "http" or "grpc"; BLSError, in Triton's words, if they are invalid."""
    kind, prefix = ("api", "") if protocol == "http" else ("protocol", "triton-grpc-protocol-")
    required: dict[str, tuple[str, str]] = {}
    for group in [groups] if isinstance(groups, str) else groups:
        names, _, setting = group.partition(":")
        key, _, value = setting.partition("=")
        if not (names and key and value):
            form = "'<config name>:<setting>=<value>'"
            raise BLSError(f"--{protocol}-restricted-{kind} option format is {form}. Got {group}")
        for name in names.split(","):
            if name not in _CATEGORIES:
                raise BLSError(f"unknown restricted {kind} '{name}'; expected {', '.join(_CATEGORIES)}")
            if name in required:
                raise BLSError(f"restricted {kind} '{name}' can not be specified in multiple config groups")
            required[name] = prefix + key, value
    try:
        flags = 0 if pattern.startswith("(?-i)") else re.IGNORECASE  # Python's expressions lack this prefix
        return HeaderOptions(required, re.compile(pattern.removeprefix("(?-i)"), flags) if pattern else None)
    except re.error as error:
        raise BLSError(
            f"--{protocol}-header-forward-pattern: invalid regular expression {pattern!r}: {error}"
        ) from None
