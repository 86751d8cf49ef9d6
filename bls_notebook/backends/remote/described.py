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
                "name": str(t["name"]),
                "data_type": "TYPE_STRING" if t["datatype"] == "BYTES" else f"TYPE_{t['datatype']}",
                "dims": [int(size) for size in t.get("shape") or ()],
                **more,
            }
            for t in metadata.get(kind) or ()
        ]

    return {
        "name": name,
        "platform": str(metadata.get("platform") or ""),
        "input": tensors("inputs", optional=True),
        "output": tensors("outputs"),
    }
