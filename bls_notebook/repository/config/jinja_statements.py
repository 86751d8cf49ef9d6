"""Render a configuration with statements of Jinja, such as ``{% if use_gpu %}``, as a project's script renders it.

An expression without a value stays in the text, as a template to fill; a statement takes the branch that Jinja takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bls_notebook.engine.errors import ConfigError
from bls_notebook.records.units import listed
from bls_notebook.records.visible_text import visible

STATEMENT = re.compile(
    r"\{%[-+]?\s*(?:if|for|set|macro|with|raw|filter|call|do|include|import|from|extends|block)\b[^%\n]*%\}"
)


def render_statements(text: str, values: Mapping[str, object], model: str) -> tuple[str, list[str]]:
    """Return the rendered text, and the names that it uses without a default.

    Raises a ConfigError if a statement needs a value that is missing, or is invalid.
    """
    names: list[str] = []
    try:
        from jinja2 import ChainableUndefined, meta, nodes
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        class Open(ChainableUndefined):
            """A value that is missing: it prints as its own expression."""

            def __getattr__(self, name: str) -> Any:
                if name.startswith("__"):
                    raise AttributeError(name)
                return Open(name=f"{self._undefined_name}.{name}")

            __getitem__ = __getattr__

            def __str__(self) -> str:
                return f"{{{{ {self._undefined_name} }}}}"

        environment = ImmutableSandboxedEnvironment(undefined=Open, keep_trailing_newline=True)
        tree = environment.parse(text)
        names = sorted(meta.find_undeclared_variables(tree))
        context = {name: _typed(values[name]) for name in names if name in values}
        rendered = environment.from_string(text).render(context)
        defaults = (each.node for each in tree.find_all(nodes.Filter) if each.name == "default")
        optional = {node.name for node in defaults if isinstance(node, nodes.Name)}
        return rendered, [name for name in names if name not in optional or name in values]
    except ModuleNotFoundError:
        why = "it has statements of Jinja, and the package jinja2 is missing; `pip install jinja2`"
    except Exception as error:  # a template runs code of its own
        why = f"its statements of Jinja fail: {type(error).__name__}: {visible(str(error))}"
        text = str(error)
        missing = sorted((name for name in names if name not in values), key=lambda name: f"'{name}" not in text)
        if missing:
            why += f"; values are missing: {listed(missing, 6)}; `--fill {missing[0]}=VALUE` sets one"
    raise ConfigError(f"model '{model}': config.pbtxt: {why}")


def _typed(value: object) -> object:
    """Return a value of the command line as Jinja's conditions and loops expect it."""
    if isinstance(value, str):
        with suppress(ValueError):
            return json.loads(value)
    return value
