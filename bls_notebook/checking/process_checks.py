"""Check for state of the process that instances and models share here, and on a server do not: seeds and environment.

A finding needs two instances, or two models, that would influence each other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from .checked_model import CheckedModel
from .python_source import PythonSource
from .records import Finding

# The global generators: the call that seeds one, calls that draw from it, and a generator of the instance's own.
_GENERATORS = {
    "np.random": (
        re.compile(r"(?:np|numpy)\.random\.seed"),
        re.compile(r"(?:np|numpy)\.random\.(?!seed|default_rng|RandomState|Generator|SeedSequence|PCG64|get_state)\w+"),
        "np.random.default_rng(seed)",
    ),
    "random": (
        re.compile(r"random\.seed"),
        re.compile(r"random\.(?!seed|Random|SystemRandom)\w+"),
        "random.Random(seed)",
    ),
    "torch": (
        re.compile(r"torch\.(?:random\.)?manual_seed"),
        re.compile(r"torch\.(?:rand|randn|randint|randperm|normal|bernoulli|multinomial)"),
        "torch.Generator().manual_seed(seed)",
    ),
}
_ENVIRON = re.compile(r"os\.environ|environ")


def process_findings(model: CheckedModel, models: Mapping[str, CheckedModel]) -> Iterator[Finding]:
    """Yield seeds of global random generators, and environment variables, that reach other instances or models here."""
    code = model.newest()
    if code is None or code.mistake:
        return
    others = {name: source for name, source in _sources(models) if name != model.name}
    for generator, (seeds, draws, own) in _GENERATORS.items():
        lines = _calls(code, seeds)
        if not lines:
            continue
        sharing = [name for name, other in others.items() if _calls(other, seeds) or _calls(other, draws)]
        who = f"model {sharing[0]!r}" if sharing else "its other instances"
        if sharing or (model.instances > 1 and _calls(code, draws)):
            yield model.in_code("process-seed", code, lines[0], generator=generator, who=who, own=own)
    for name, line, value in _set_variables(code):
        readers = [other for other, source in others.items() if _differs(source, name, value)]
        if readers or (model.instances > 1 and re.search(r"\bargs\b|instance", value)):
            who = f"model {readers[0]!r}" if readers else "its other instances"
            yield model.in_code("process-environ", code, line, name=name, who=who)


def _sources(models: Mapping[str, CheckedModel]) -> Iterator[tuple[str, PythonSource]]:
    for name, model in models.items():
        code = model.newest()
        if code is not None and not code.mistake:
            yield name, code


def _calls(code: PythonSource, pattern: re.Pattern[str]) -> list[int]:
    """Return the lines of calls of the functions that a pattern describes."""
    if "random" not in code.words and "torch" not in code.words:
        return []
    return [
        node.lineno
        for node, _ in code.nodes
        if isinstance(node, ast.Call)
        and pattern.fullmatch(ast.unparse(node.func))
        and not any(keyword.arg == "generator" for keyword in node.keywords)
    ]


def _set_variables(code: PythonSource) -> Iterator[tuple[str, int, str]]:
    """Yield the environment variables that a model sets: name, line, and the expression of the value."""
    if "environ" not in code.words:
        return
    for node, _ in code.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            if _ENVIRON.fullmatch(ast.unparse(target.value)) and (name := _text(target.slice)):
                yield name, node.lineno, ast.unparse(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "os.putenv" and len(node.args) == 2:
            yield _text(node.args[0]), node.lineno, ast.unparse(node.args[1])


def _differs(code: PythonSource, name: str, value: str) -> bool:
    """Return whether a model reads a variable without setting it, or sets it to another value."""
    own = [text for other, _, text in _set_variables(code) if other == name]
    if own:
        return any(text != value for text in own)
    return any(
        (
            (isinstance(node, ast.Call) and re.fullmatch(r"os\.getenv|(?:os\.)?environ\.get", ast.unparse(node.func)))
            and bool(node.args)
            and _text(node.args[0]) == name
        )
        or (
            isinstance(node, ast.Subscript)
            and bool(_ENVIRON.fullmatch(ast.unparse(node.value)))
            and _text(node.slice) == name
        )
        for node, _ in code.nodes
    )


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
