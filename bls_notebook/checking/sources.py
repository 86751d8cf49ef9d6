"""Sources: code that a server cannot load, names that nothing defines, files looked for elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from bls_notebook.backends.python import CLASS_NAME
from bls_notebook.repository.source.model_class import model_class_warnings
from bls_notebook.repository.source.notebook_globals import undefined_names

from .api_names import missing_names
from .code import Code
from .material import Material
from .records import Finding
from .values import argument, last_name, spreads

_LINE = re.compile(r"^model '.*?', line (\d+): ")
# What opens a file, by the last of its names; the name of the file comes first.
_OPENS = frozenset({
    "open", "load", "loadtxt", "read_csv", "read_json", "read_parquet", "imread", "InferenceSession",
    "from_file", "load_model", "CDLL",
})  # fmt: skip


def source_findings(model: Material) -> Iterator[Finding]:
    """Yield what keeps a model's code from being loaded, or its requests from being served."""
    for code in model.codes.values():
        if code.mistake:
            line, why = code.mistake
            yield model.in_code(
                "error", "code-syntax", code, line, f"model.py is no Python: {why}",
                "The model does not load.", "Correct the line.",
            )  # fmt: skip
            continue
        yield from _of_code(model, code)


def _of_code(model: Material, code: Code) -> Iterator[Finding]:
    defined = {
        n.asname or n.name for node in code.tree.body if isinstance(node, ast.ImportFrom) for n in node.names
    }
    if (
        code.model_class is None
        and not defined & {CLASS_NAME, "*"}
        and not code.lines_with(rf"\b{CLASS_NAME}\b")
    ):
        yield model.in_code(
            "error", "code-no-class", code, 0, f"there is no class {CLASS_NAME}", "The model does not load.",
            f"Call the class {CLASS_NAME}: it is what the Python backend looks for.",
        )  # fmt: skip
    for told in model_class_warnings(code.text, model.name):
        place = _LINE.match(told)
        what, _, mend = _LINE.sub("", told).partition("; ")
        yield model.in_code(
            "error",
            "code-no-execute",
            code,
            int(place[1]) if place else 0,
            what,
            "Every request fails.",
            mend,
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
    yield from _files(model, code)
    yield from _texts(model, code)
    yield from _environment(model, code)
    yield from _devices(model, code)


def _files(model: Material, code: Code) -> Iterator[Finding]:
    """Files of the model's that are named as if the server ran in their folder."""
    told: set[str] = set()
    for node in ast.walk(code.tree):
        if not isinstance(node, ast.Call) or last_name(node.func) not in _OPENS:
            continue
        given = argument(node, "file", 0)
        name = given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""
        if not name or name in told or name.startswith(("/", "~")) or len(name) > 200 or "\0" in name:
            continue
        folder = next((f for f in (code.path.parent, model.folder) if (f / name).is_file()), None)
        if folder is None or code.mentions("chdir"):
            continue
        told.add(name)
        of = "args['model_version'], " if folder == code.path.parent else ""
        yield model.in_code(
            "error", "file-relative", code, node.lineno,
            f"{name!r} is opened, and lies in the model's folder",
            "A server runs in a folder of its own, where there is no such file.",
            f"In `initialize`: `os.path.join(args['model_repository'], {of}{name!r})`.",
        )  # fmt: skip


def _texts(model: Material, code: Code) -> Iterator[Finding]:
    """Text that is read or written in whatever encoding the process has."""
    lines = [call.lineno for call in ast.walk(code.tree) if isinstance(call, ast.Call) and _is_text(call)]
    if lines and not code.lines_with(r"\bimport\b.*\bopen\b|\bdef open\b"):
        more = f", {len(lines)} times" if len(lines) > 1 else ""
        yield model.in_code(
            "note", "file-encoding", code, min(lines), f"a text file is opened without `encoding=`{more}",
            "The stub of a server takes text for ASCII, whatever LANG says: any other character is an error.",
            "Say `encoding='utf-8'`.",
        )  # fmt: skip


def _is_text(call: ast.Call) -> bool:
    """Whether a call opens a file as text, for certain, in no encoding that it names."""
    if spreads(call) or argument(call, "encoding", -1) is not None:
        return False
    name = last_name(call.func)
    if isinstance(call.func, ast.Name):
        mode = argument(call, "mode", 1)
        plain = mode is None or isinstance(mode, ast.Constant)
        return name == "open" and plain and len(call.args) < 4 and "b" not in str(getattr(mode, "value", ""))
    return (name == "read_text" and not call.args) or (name == "write_text" and len(call.args) == 1)


def _environment(model: Material, code: Code) -> Iterator[Finding]:
    """Variables of the environment without which it fails."""
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
            "A model runs in a process that inherits the server's environment: a variable of this one is not "
            "there by itself.",
            "Give it to the server's container (`docker run -e`), or use `os.environ.get` with a default.",
        )  # fmt: skip


def _devices(model: Material, code: Code) -> Iterator[Finding]:
    """Code that names a GPU, beside where its instances are."""
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


def _names_a_gpu(code: Code) -> int:
    """The line of `initialize` that names one whatever happens; 0 where none does."""
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
