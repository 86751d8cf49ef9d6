"""A configuration for a model of which a server tells the metadata alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def config_of_metadata(name: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration, in its JSON form, of a model's metadata in the KServe v2 protocol.

    The metadata does not say whether the first size of a shape is a batch, so the shapes are taken as they
    are; nor whether an input may be left out, so every one may.
    """

    def tensors(kind: str, **more: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": t["name"],
                "data_type": "TYPE_STRING" if t["datatype"] == "BYTES" else f"TYPE_{t['datatype']}",
                "dims": t["shape"],
                **more,
            }
            for t in metadata[kind]
        ]

    return {
        "name": name,
        "platform": metadata["platform"],
        "input": tensors("inputs", optional=True),
        "output": tensors("outputs"),
    }


def plain_metadata(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's metadata as its server said it in JSON, each part there and of its type.

    Raises AttributeError, KeyError, TypeError, ValueError: it is not what the protocol says.
    """

    def tensors(kind: str) -> list[dict[str, Any]]:
        return [
            {
                "name": str(t["name"]),
                "datatype": str(t["datatype"]),
                "shape": [int(size) for size in t.get("shape") or ()],
            }
            for t in said.get(kind) or ()
        ]

    return {
        "versions": [str(each) for each in said.get("versions") or ()],
        "platform": str(said.get("platform") or ""),
        "inputs": tensors("inputs"),
        "outputs": tensors("outputs"),
    }
