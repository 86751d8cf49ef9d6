"""Records in files: one JSON object, gzipped or not, that says of what kind and schema it is."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from bls_notebook.observe.plain import Record

__all__ = ["RecordFile", "read_json"]

_Record = TypeVar("_Record", bound=Record)


def read_json(data: bytes) -> Any:
    """Return what JSON text stands for, also where it is gzipped.

    Raises
    ------
    ValueError
        It is no JSON.
    """
    try:
        return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (ValueError, EOFError, OSError, zlib.error, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from None


@dataclass(frozen=True)
class RecordFile(Generic[_Record]):
    """Files that hold a record of one type; `a_file` and `content` are what messages call them."""

    record: type[_Record]
    kind: str
    schema: int
    a_file: str
    content: str

    def save(self, record: _Record, path: str | Path) -> Path:
        """Write a record; compressed where the file's name ends with ``.gz``."""
        target = Path(path)
        text = json.dumps({"kind": self.kind, **record.to_dict()}, separators=(",", ":"), allow_nan=False)
        data = text.encode()
        target.write_bytes(gzip.compress(data, mtime=0) if target.suffix == ".gz" else data)
        return target

    def load(self, path: str | Path) -> _Record:
        """Read a record that was saved, or raise what `load_lifetimes` and `load_comparison` say."""
        source = Path(path)
        foreign = f"{source.name}: not {self.a_file}"
        data = source.read_bytes()
        try:
            plain = read_json(data)
        except ValueError as error:
            raise ValueError(f"{foreign}: {error}") from None
        kind = plain.pop("kind", None) if isinstance(plain, dict) else None
        if kind != self.kind:
            what = f"its kind is {kind!r}" if kind is not None else "it has no kind"
            raise ValueError(f"{foreign}: {what}, expected {self.kind!r}")
        schema = plain.get("schema")
        if schema != self.schema:
            raise ValueError(
                f"{source.name}: {self.content} of schema {schema!r}, expected {self.schema}: "
                "read it with the version of bls_notebook that wrote it"
            )
        try:
            return self.record.from_dict(plain)
        except ValueError as error:
            raise ValueError(f"{foreign}: {error}") from None
