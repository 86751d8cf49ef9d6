"""What Tab and `?` show of a repository: public names, and the same arguments for every way of sending."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import bls_notebook as bls
from tests.waiting import LIMIT

WAYS = ("infer", "infer_async", "stream", "stream_async")


def test_tab_shows_public_names() -> None:
    repo = bls.ModelRepository()
    public = {name for name in dir(repo) if not name.startswith("_")}
    assert {"define", "load", "unload", "index", "metrics", *WAYS} <= public
    assert not public & {"server", "service", "known", "ready_model", "serve"}


def test_every_way_of_sending_takes_the_same_arguments_and_has_help() -> None:
    repo = bls.ModelRepository()
    signatures = [inspect.signature(getattr(repo, way)) for way in WAYS]
    names = [list(signature.parameters) for signature in signatures]
    assert (names[0][:3], len(names[0]), names) == (["name", "inputs", "outputs"], 11, [names[0]] * len(WAYS))
    assert [str(signature.return_annotation) for signature in signatures] == [
        "Response", "Response", "Iterator[Response]", "AsyncIterator[Response]",
    ]  # fmt: skip
    assert all(inspect.getdoc(getattr(repo, way)) for way in WAYS)
    for way in WAYS:
        with pytest.raises(TypeError, match=rf"^ModelRepository\.{way}\(\) missing 2 required positional arg"):
            getattr(repo, way)()


@pytest.mark.slow
def test_profiling_is_imported_when_it_is_used() -> None:
    code = (
        "import sys, bls_notebook as bls\n"
        "own = 'bls_notebook.profiling.'\n"
        "late = [m for m in sys.modules if m.startswith(own) and not m.endswith('.capability')]\n"
        "assert not late, late\n"
        "assert all(callable(getattr(bls, name)) for name in bls.__all__ if name != 'pb_utils')\n"
        "assert not hasattr(bls, 'nothing')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT)
