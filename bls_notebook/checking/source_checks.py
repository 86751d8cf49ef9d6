"""Check a model's Python source: syntax, undefined names, names of Triton's API, files, GPUs and packages.

Names are looked up in `pb_utils` itself; inside `try`, and where the source asks with `hasattr` or `getattr`,
missing names are fine. A package counts as installed if a file beside the models that builds an image or an
environment (a Dockerfile, requirements) mentions it, or if the model has a packed environment or changes
`sys.path`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bls_notebook import pb_utils
from bls_notebook.backends.python import CLASS_NAME
from bls_notebook.records.advice import nearest
from bls_notebook.repository.source.pip_packages import installed_as, package_of
from bls_notebook.repository.source.syntax import imported_modules, model_class_warnings, undefined_names

from .check_input import CheckedModel
from .python_source import PythonSource, argument, last_name, spreads
from .records import Finding

_WARNING_LINE = re.compile(r"^model '.*?', line (\d+): ")
# Functions whose first argument is a file name.
_OPENS = frozenset({
    "open", "load", "loadtxt", "read_csv", "read_json", "read_parquet", "imread", "InferenceSession",
    "from_file", "load_model", "CDLL",
})  # fmt: skip


def source_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield reasons why a model's code does not load, or its requests fail."""
    for code in model.codes.values():
        if code.mistake:
            line, why = code.mistake
            yield model.in_code(
                "error", "code-syntax", code, line, f"model.py is no Python: {why}",
                "The model does not load.", "Correct the line.",
            )  # fmt: skip
            continue
        yield from _code_findings(model, code)


def _code_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    defined = {n.asname or n.name for node in code.tree.body if isinstance(node, ast.ImportFrom) for n in node.names}
    if code.model_class is None and not defined & {CLASS_NAME, "*"} and not code.lines_with(rf"\b{CLASS_NAME}\b"):
        yield model.in_code(
            "error", "code-no-class", code, 0, f"there is no class {CLASS_NAME}", "The model does not load.",
            f"Call the class {CLASS_NAME}: it is what the Python backend looks for.",
        )  # fmt: skip
    for warning in model_class_warnings(code.text, model.name):
        place = _WARNING_LINE.match(warning)
        what, _, mend = _WARNING_LINE.sub("", warning).partition("; ")
        yield model.in_code(
            "error", "code-no-execute", code, int(place[1]) if place else 0, what, "Every request fails.", mend
        )
    for name, line in undefined_names(code.text).items():
        yield model.in_code(
            "error", "code-undefined", code, line, f"{name!r} is read, and nothing defines it",
            "A NameError, when this line is reached.", "Define or import it in model.py.",
        )  # fmt: skip
    for name, line, owner, close in missing_names(code):
        yield model.in_code(
            "error", "code-no-such-name", code, line, f"{name!r} is no name of `{owner}`",
            "It fails when this line is reached, here and on a server.",
            f"Did you mean `{owner}.{close}`?" if close else f"`dir({owner})` lists what is there.",
        )  # fmt: skip
    yield from _relative_file_findings(model, code)
    yield from _encoding_findings(model, code)
    yield from _environment_variable_findings(model, code)
    yield from _fixed_device_findings(model, code)


def _relative_file_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield files of the model that are opened by a path relative to its folder."""
    reported: set[str] = set()
    for node in ast.walk(code.tree):
        if not isinstance(node, ast.Call) or last_name(node.func) not in _OPENS:
            continue
        given = argument(node, "file", 0)
        name = given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""
        if not name or name in reported or name.startswith(("/", "~")) or len(name) > 200 or "\0" in name:
            continue
        folder = next((f for f in (code.path.parent, model.folder) if (f / name).is_file()), None)
        if folder is None or code.mentions("chdir"):
            continue
        reported.add(name)
        of = "args['model_version'], " if folder == code.path.parent else ""
        yield model.in_code(
            "error", "file-relative", code, node.lineno,
            f"{name!r} is opened, and lies in the model's folder",
            "A server runs in a folder of its own, where there is no such file.",
            f"In `initialize`: `os.path.join(args['model_repository'], {of}{name!r})`.",
        )  # fmt: skip


def _encoding_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield a note if text files are opened in the process's default encoding."""
    lines = [call.lineno for call in ast.walk(code.tree) if isinstance(call, ast.Call) and _is_text(call)]
    if lines and not code.lines_with(r"\bimport\b.*\bopen\b|\bdef open\b"):
        more = f", {len(lines)} times" if len(lines) > 1 else ""
        yield model.in_code(
            "note", "file-encoding", code, min(lines), f"a text file is opened without `encoding=`{more}",
            "The stub of a server takes text for ASCII, whatever LANG says: any other character is an error.",
            "Say `encoding='utf-8'`.",
        )  # fmt: skip


def _is_text(call: ast.Call) -> bool:
    """Whether a call certainly opens a text file without `encoding=`."""
    if spreads(call) or argument(call, "encoding", -1) is not None:
        return False
    name = last_name(call.func)
    if isinstance(call.func, ast.Name):
        mode = argument(call, "mode", 1)
        plain = mode is None or isinstance(mode, ast.Constant)
        return name == "open" and plain and len(call.args) < 4 and "b" not in str(getattr(mode, "value", ""))
    return (name == "read_text" and not call.args) or (name == "write_text" and len(call.args) == 1)


def _environment_variable_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield a note about required environment variables."""
    lines: dict[str, int] = {}
    sets: set[str] = set()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("os.environ", "environ"):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str) and isinstance(node.ctx, ast.Load):
                lines.setdefault(key, node.lineno)
            elif isinstance(key, str):
                sets.add(key)
    needed = {key: line for key, line in lines.items() if key not in sets}
    if needed and not code.mentions("KeyError"):
        names = ", ".join(needed)
        yield model.in_code(
            "note", "environment-variable", code, next(iter(needed.values())),
            f"it reads {names} from the environment, without a value for when there is none",
            "A model runs in a process that inherits the server's environment: a variable set in this process "
            "is not set there.",
            "Give it to the server's container (`docker run -e`), or use `os.environ.get` with a default.",
        )  # fmt: skip


def _fixed_device_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield findings if the code names a GPU that contradicts the instance groups."""
    line = _names_a_gpu(code)
    if not line or code.mentions("is_available"):
        return
    on_gpus = {device for group in model.given.instance_group for device in group.gpus}
    cpu = type(model.config).DESCRIPTOR.fields_by_name["instance_group"].message_type.enum_values_by_name
    groups = model.given.instance_group
    if groups and all(group.kind == cpu["KIND_CPU"].number for group in groups):
        yield model.in_code(
            "note", "device-unasked", code, line,
            "its code computes on a GPU, and its instances are of KIND_CPU",
            "It fails where there is no GPU; where there are several, all its instances use the first.",
            "Use `kind: KIND_GPU`, and `f\"cuda:{args['model_instance_device_id']}\"`.",
        )  # fmt: skip
    if len(on_gpus) > 1 and not code.mentions("model_instance_device_id"):
        yield model.in_code(
            "warning", "device-fixed", code, line,
            f"it has instances on GPUs {', '.join(map(str, sorted(on_gpus)))}, and its code names one "
            f"for all of them",
            "Every instance computes on the same GPU: the others stay idle, and its memory is what runs out.",
            "Use `f\"cuda:{args['model_instance_device_id']}\"`.",
        )  # fmt: skip


def _names_a_gpu(code: PythonSource) -> int:
    """Return the line of `initialize` that uses a GPU unconditionally, or 0."""
    body = code.model_class.body if code.model_class else []
    todo: list[ast.AST] = [n for n in body if isinstance(n, ast.FunctionDef) and n.name == "initialize"]
    lines = []
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.If, ast.IfExp, ast.Try, ast.BoolOp)):
            continue
        calls = isinstance(node, ast.Call) and last_name(node.func) == "cuda" and not node.args
        if calls or (isinstance(node, ast.Constant) and node.value in ("cuda", "cuda:0")):
            lines.append(getattr(node, "lineno", 0))
        todo += ast.iter_child_nodes(node)
    return min(lines, default=0)


MODULE = "triton_python_backend_utils"


def missing_names(code: PythonSource) -> Iterator[tuple[str, int, str, str]]:
    """Yield each missing name as written, its line, its module or class, and the nearest existing name."""
    aliases: set[str] = set()
    ready = _tolerated(code.tree)
    reported: set[str] = set()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Import):
            aliases |= {each.asname or MODULE for each in node.names if each.name == MODULE}
    aliases -= _reassigned_names(code.tree)
    for node in ast.walk(code.tree):
        if id(node) in ready:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == MODULE and not node.level:
            for each in node.names:
                if each.name != "*" and not hasattr(pb_utils, each.name) and each.name not in ready:
                    yield each.name, node.lineno, MODULE, nearest(each.name, dir(pb_utils))
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            owner, at = _resolve_owner(node.value, aliases)
            if owner is None or hasattr(owner, node.attr) or node.attr in ready or name in reported:
                continue
            reported.add(name)
            yield name, node.lineno, at, nearest(node.attr, dir(owner))


def _resolve_owner(node: ast.expr, aliases: set[str]) -> tuple[Any, str]:
    """Return the module or class that an expression certainly is, and its name; else None."""
    if isinstance(node, ast.Name):
        return (pb_utils, node.id) if node.id in aliases else (None, "")
    if not isinstance(node, ast.Attribute):
        return None, ""
    owner, name = _resolve_owner(node.value, aliases)
    found = getattr(owner, node.attr, None) if owner is not None else None
    return (found, f"{name}.{node.attr}") if isinstance(found, type) else (None, "")


def _reassigned_names(tree: ast.Module) -> set[str]:
    """Return names that are reassigned; `= None`, the fallback without Triton, does not count."""
    none = {
        id(target)
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant) and n.value.value is None
        for target in n.targets
    }
    names = {
        n.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load) and id(n) not in none
    }
    return names | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}


def _catches(handler: ast.ExceptHandler, node: ast.Try) -> bool:
    """Whether a handler expects a missing name; a broad handler does if it guards one statement."""
    caught = "" if handler.type is None else ast.unparse(handler.type)
    return "AttributeError" in caught or "ImportError" in caught or len(node.body) == 1


def _tolerated(tree: ast.Module) -> set[int | str]:
    """Return nodes that may fail or never run, and names that the source tests for or sets."""
    found: set[int | str] = set()
    lazy = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(_catches(each, node) for each in node.handlers):
            found |= {id(each) for part in node.body for each in ast.walk(part)}
        elif isinstance(node, ast.With) and "suppress" in ast.unparse(node.items[0]):
            found |= {id(each) for each in ast.walk(node)}
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        elif isinstance(node, ast.Call) and last_name(node.func) in ("hasattr", "getattr", "setattr"):
            texts = (n.value for n in node.args if isinstance(n, ast.Constant))
            found |= {text for text in texts if isinstance(text, str)}
        for part in ("annotation", "returns") if lazy else ():
            if isinstance(getattr(node, part, None), ast.AST):
                found |= {id(each) for each in ast.walk(getattr(node, part))}
    return found


# What is in nvcr.io/nvidia/tritonserver:<yy.mm>-py3 besides Python's own: the server's own packages and what
# its OpenAI-compatible frontend needs (server/build.py, python/openai/requirements.txt).
_IN_IMAGE = frozenset({
    "numpy", "pip", "setuptools", "pkg_resources", "wheel", "virtualenv", "triton_python_backend_utils",
    "c_python_backend_utils", "tritonserver", "tritonfrontend", "fastapi", "starlette", "uvicorn", "pydantic",
    "httpx", "openai", "scipy", "anyio", "partial_json_parser", "typing_extensions", "google", "distutils",
    "imp", "tqdm", "jiter", "distro", "sniffio", "certifi", "httpcore", "idna", "h11", "annotated_types",
    # Only in some releases.
    "cupy", "grpc", "packaging", "psutil", "requests", "six", "urllib3", "yaml",
})  # fmt: skip
# Images with unknown further packages.
_OTHER_IMAGES = frozenset({"vllm", "tensorrtllm"})
_BUILDS = re.compile(r"(?i)dockerfile|requirements|environment|conda|pyproject|setup\.|pipfile|readme|compose|\.sh$")


def package_findings(
    model: CheckedModel, others: Mapping[str, CheckedModel], build_texts: dict[Path, str]
) -> Iterator[Finding]:
    """Yield a finding about packages that NVIDIA's image of the server lacks.

    `build_texts` caches, for one check, the files of a folder that build an image.
    """
    code = model.newest()
    if code is None or code.mistake or "EXECUTION_ENV_PATH" in model.config.parameters:
        return
    if any(each.config.backend in _OTHER_IMAGES for each in others.values()) or code.mentions("sys.path"):
        return
    lacking: dict[str, int] = {}
    beside = model.folder.parent if model.place is None else Path.cwd()
    if beside not in build_texts:
        build_texts[beside] = _build_texts(beside)
    for name, line in imported_modules(code.tree, needed=True).items():
        own = any(
            (folder / name).exists() or (folder / f"{name}.py").exists() for folder in (code.path.parent, model.folder)
        )
        if own or name in _IN_IMAGE or name in sys.stdlib_module_names:
            continue
        if not re.search(rf"\b{re.escape(installed_as(name)).replace('_', '[-_]')}", build_texts[beside]):
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


def _build_texts(folder: Path) -> str:
    """Return the text of files that build an image or an environment, in a folder and its parents."""
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
        if (place / ".git").exists():  # the project's root
            break
    return "\n".join(texts)
