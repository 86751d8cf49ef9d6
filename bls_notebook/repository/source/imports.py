"""The imports of a model's source: which modules, which packages provide them, and which exist only in the
notebook.

Modules in the notebook's own folder can be imported here, because the kernel searches that folder, but they
do not exist on Triton. The source is parsed, never run or imported.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import re
import sys
from pathlib import Path

from bls_notebook.repository.modules.imports import FINDER, SHARED

from .syntax import syntax_tree


def imported_modules(tree: ast.AST, needed: bool = False) -> dict[str, int]:
    """Return the top-level names of the modules that a source imports, with the first line of each.

    Only those `needed`: not what it can do without, in a ``try`` that catches a failing import, or for type
    checking.
    """
    out: dict[str, int] = {}
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop(0)
        if needed and isinstance(node, ast.Try) and any(map(_catches_imports, node.handlers)):
            todo += [*node.orelse, *node.finalbody]
            continue
        if needed and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            todo += ast.iter_child_nodes(node)
            continue
        for name in names:
            top = name.partition(".")[0]
            out[top] = min(node.lineno, out.get(top, node.lineno))
    return out


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(
        name in ast.unparse(handler.type) for name in ("ImportError", "ModuleNotFoundError", "Exception")
    )


_PACKAGES = {
    "absl": "absl-py", "attr": "attrs", "bs4": "beautifulsoup4", "clip": "openai-clip",
    "Crypto": "pycryptodome", "cuda": "cuda-python", "cupy": "cupy-cuda12x", "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv", "faiss": "faiss-cpu",
    "fitz": "pymupdf", "git": "gitpython", "google.protobuf": "protobuf", "grpc": "grpcio",
    "hydra": "hydra-core", "jwt": "pyjwt", "magic": "python-magic", "MeCab": "mecab-python3",
    "mmcv": "mmcv-lite", "nemo": "nemo_toolkit", "nvidia.dali": "nvidia-dali-cuda120", "OpenSSL": "pyopenssl",
    "paddle": "paddlepaddle", "PIL": "pillow", "pkg_resources": "setuptools<81", "pywt": "PyWavelets",
    "pynvml": "nvidia-ml-py",
    "rapidjson": "python-rapidjson", "serial": "pyserial", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "speech_recognition": "SpeechRecognition",
    "torch": "torch --index-url https://download.pytorch.org/whl/cpu", "tritonclient": "tritonclient[all]",
    "umap": "umap-learn", "whisper": "openai-whisper", "yaml": "PyYAML", "zmq": "pyzmq",
}  # fmt: skip
_STEMS = {"cv2": "opencv", "cupy": "cupy", "faiss": "faiss", "nvidia": "nvidia-"}
_NOT_HERE = frozenset({"tensorrt", "tensorrt_llm", "pycuda", "cudf", "flash_attn", "nvidia.dali", "deepspeed"})


def package_of(module: str) -> str:
    """Return what `pip install` takes for a module, by its dotted name."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        found = _PACKAGES.get(".".join(parts[:length]))
        if found is not None:
            return found
    return parts[0]


def installed_as(module: str) -> str:
    """Return how the name of a package begins in files that install it; it may come in several builds."""
    return _STEMS.get(module) or re.split(r"[\s<\[]", package_of(module))[0].lower()


def needs_gpu(module: str) -> bool:
    """Whether a module is of no use without a CUDA GPU."""
    return module.partition(".")[0] in _NOT_HERE or module in _NOT_HERE


def stray_import_warnings(source: str, model: str) -> tuple[str, ...]:
    """Return a line for each module that the source imports from the notebook's folder."""
    return tuple(
        f"model '{model}', line {line}: module '{name}' is found in the notebook's folder only, and will not "
        f"exist on Triton; install it, or keep the model in a folder with {name} beside its model.py"
        for name, line in stray_imports(source).items()
    )


def stray_imports(source: str) -> dict[str, int]:
    """Return the top-level modules of the notebook's folder that a module imports, with the first lines."""
    tree = syntax_tree(source)
    if tree is None:
        return {}  # it has worse problems
    lines = imported_modules(tree)
    try:
        here = Path.cwd()
    except OSError:  # it has gone, and nobody finds anything there
        return {}
    elsewhere = [entry for entry in sys.path if not _is(entry, here)]
    if len(elsewhere) == len(sys.path):
        return {}  # the notebook's folder is not looked into
    strays = {n: line for n, line in lines.items() if n not in SHARED and _lies_in(n, here, elsewhere)}
    return dict(sorted(strays.items(), key=lambda item: (item[1], item[0])))


def _is(entry: str, folder: Path) -> bool:
    return os.path.realpath(entry) == os.path.realpath(folder)  # "" is the current folder


def _lies_in(name: str, here: Path, elsewhere: list[str]) -> bool:
    find = importlib.machinery.PathFinder.find_spec
    if find(name, [str(here)]) is None or find(name, elsewhere) is not None:
        return False
    passed = (importlib.machinery.PathFinder, FINDER)
    others = (finder for finder in sys.meta_path if finder not in passed)
    return not any(_finds(finder, name) for finder in others)  # installed for editing, perhaps


def _finds(finder: object, name: str) -> bool:
    find = getattr(finder, "find_spec", None)
    try:
        return find is not None and find(name, None) is not None
    except Exception:
        return False
