"""Packages that a model imports and that NVIDIA's image of the server does not have.

What is named in a file beside the models that builds an image or an environment (a Dockerfile, requirements)
counts as being there, as does everything once a packed environment is set, or `sys.path` is changed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from bls_notebook.repository.source.imported import imported_modules
from bls_notebook.repository.source.packages import installed_as, package_of

from .code import Code
from .material import Material
from .records import Finding

# What is in nvcr.io/nvidia/tritonserver:<yy.mm>-py3 besides Python's own: the server's own packages and what
# its OpenAI-compatible frontend needs (server/build.py, python/openai/requirements.txt).
_IN_IMAGE = frozenset({
    "numpy", "pip", "setuptools", "pkg_resources", "wheel", "virtualenv", "triton_python_backend_utils",
    "c_python_backend_utils", "tritonserver", "tritonfrontend", "fastapi", "starlette", "uvicorn", "pydantic",
    "httpx", "openai", "scipy", "anyio", "partial_json_parser", "typing_extensions", "google", "distutils",
    "imp", "tqdm", "jiter", "distro", "sniffio", "certifi", "httpcore", "idna", "h11", "annotated_types",
    # These are in some releases.
    "cupy", "grpc", "packaging", "psutil", "requests", "six", "urllib3", "yaml",
})  # fmt: skip
# Images of other kinds have more in them than can be told.
_OTHER_IMAGES = frozenset({"vllm", "tensorrtllm"})
_BUILDS = re.compile(
    r"(?i)dockerfile|requirements|environment|conda|pyproject|setup\.|pipfile|readme|compose|\.sh$"
)


def package_findings(
    model: Material, others: Mapping[str, Material], built: dict[Path, str]
) -> Iterator[Finding]:
    """Yield the packages of a model that have to be brought to the server.

    `built` keeps what the files of a folder say that build an image, for the models of one check.
    """
    code = model.newest()
    if code is None or code.mistake or "EXECUTION_ENV_PATH" in model.config.parameters:
        return
    if any(each.config.backend in _OTHER_IMAGES for each in others.values()) or code.mentions("sys.path"):
        return
    lacking: dict[str, int] = {}
    beside = model.folder.parent if model.place is None else Path.cwd()
    if beside not in built:
        built[beside] = _build_texts(beside)
    for name, line in imported_modules(code.tree, needed=True).items():
        own = any(
            (folder / name).exists() or (folder / f"{name}.py").exists() for folder in _folders(code, model)
        )
        if own or name in _IN_IMAGE or name in sys.stdlib_module_names:
            continue
        if not re.search(rf"\b{re.escape(installed_as(name)).replace('_', '[-_]')}", built[beside]):
            lacking[name] = line
    if not lacking:
        return
    names = ", ".join(lacking)
    install = " ".join(map(package_of, lacking))
    them = "it" if len(lacking) == 1 else "them"
    yield model.in_code(
        "warning", "package-missing", code, next(iter(lacking.values())),
        f"it imports {names}, which NVIDIA's image of the server does not have",
        "The model does not load there, unless the image or the environment brings " + them + ".",
        f"In the image: `RUN pip install {install}`; or pack an environment and set EXECUTION_ENV_PATH.",
    )  # fmt: skip


def _folders(code: Code, model: Material) -> tuple[Path, ...]:
    return code.path.parent, model.folder


def _build_texts(folder: Path) -> str:
    """What the files say that build an image or an environment: beside the models, and around them."""
    texts = []
    for place in (folder, *list(folder.parents)[:2]):
        try:
            entries = sorted(place.iterdir())
        except OSError:
            continue
        for file in entries:
            try:
                if _BUILDS.search(file.name) and file.is_file() and file.stat().st_size < 1 << 20:
                    texts.append(file.read_text(encoding="utf-8", errors="replace").lower())
            except OSError:
                continue
        if (place / ".git").exists():  # what is around it is somebody else's
            break
    return "\n".join(texts)
