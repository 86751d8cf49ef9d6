"""Fills templates in a config.pbtxt: ``${max_batch_size}`` and its kin, by what their place takes.

Public repositories ship configurations that a script is meant to fill first. A value comes from who asks,
from the environment, from the template itself, or is one that harms nothing. An open template inside quotes
is text like any other, which Triton hands to the model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from bls_notebook.engine.errors import ConfigError
from bls_notebook.records.fills import Fill
from bls_notebook.records.quantities import listed
from bls_notebook.records.visible import visible

from .template_places import IN_TEXT, PARTS, Template, find_templates, scan

__all__ = ["Filled", "Template", "fill_templates", "filled_config", "find_templates", "open_reason"]

_LISTED = 6


@dataclass(frozen=True)
class Filled:
    """The text of a configuration with its templates filled, with what, and what stays open."""

    text: str
    fills: tuple[Fill, ...] = ()
    open: tuple[Template, ...] = ()

    @property
    def unread(self) -> tuple[Template, ...]:
        """Those open ones with which the configuration cannot be read."""
        return tuple(template for template in self.open if not template.quoted)


def fill_templates(
    text: str,
    values: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    defaults: bool = False,
    model: str = "",
) -> Filled:
    """Fill the templates in the text of a config.pbtxt; a ConfigError where a value does not fit.

    `values` are taken first, by key or ``model.key``: they may have templates of their own, and a key of the
    configuration's ``parameters`` will do too, whose value is replaced. Next comes the `environment`. With
    `defaults`, what is still open takes a value that harms nothing, by its field, or by its key where that is
    one of tensorrtllm_backend's; text has none, so it mostly stays open.
    """
    given = {key: _as_text(value) for key, value in (values or {}).items()}
    given |= {key[len(model) + 1 :]: value for key, value in given.items() if key.startswith(f"{model}.")}
    found = _disjoint([each for each in scan(text) if _counts(each, given, environment)], given)
    harmless: dict[str, str] = {}
    if defaults:
        for template in found:
            if template.harmless is not None:
                harmless.setdefault(template.key, template.harmless)
    sources = (
        ("given", given),
        ("environment", environment or {}),
        ("in the file", {t.key: t.otherwise for t in reversed(found) if t.otherwise is not None}),
        ("default", harmless),
    )
    fills: dict[str, Fill] = {}
    left: list[Template] = []
    pieces: list[str] = []
    at = 0
    for template in found:
        key = template.key
        origin, value = _look_up(key, sources)
        if value is None:
            left.append(template)
            continue
        try:
            value = _expand(value, sources, (key,))
            written = template.rendered(value)
        except ValueError as error:
            raise ConfigError(
                f"model '{model}': config.pbtxt:{template.line}: template {visible(template.written)} "
                f"({template.place}): {error}"
            ) from None
        pieces += text[at : template.span[0]], written
        at = template.span[1]
        places = fills[key].places if key in fills else ()
        fills[key] = Fill(key, value, origin, (*places, template.place))
    return Filled("".join((*pieces, text[at:])), tuple(fills.values()), tuple(left))


def filled_config(
    config: object, values: Mapping[str, object] | None, model: str
) -> tuple[object, tuple[str, ...]]:
    """Return a configuration as it was read, its templates filled where there are values, and what to tell.

    ``values`` is None where no template is to be filled; what it lacks comes from the environment, or is a
    default. A value that does not fit is returned as a ConfigError in the configuration's place.
    """
    if values is None or not isinstance(config, str):
        return config, ()
    try:
        filled = fill_templates(config, values, environment=os.environ, defaults=True, model=model)
    except ConfigError as error:
        return error, ()
    told = ", ".join(f"{visible(f.key)}={visible(f.value)} ({f.origin})" for f in filled.fills)
    return filled.text, (f"templates of config.pbtxt were filled: {told}",) if told else ()


def open_reason(templates: tuple[Template, ...]) -> str:
    """Return why a configuration with open templates cannot be read, and what to do, as one clause."""
    first = {template.key: template for template in reversed(templates)}
    each = sorted(first.values(), key=lambda template: template.span)
    shown = listed([visible(template.written) for template in each], _LISTED)
    pairs = [f"--fill {visible(t.key)}={t.harmless or 'VALUE'}" for t in each[:_LISTED]]
    what = "a template is" if len(each) == 1 else f"{len(each)} templates are"
    return (
        f"{what} not filled: {shown}; give values: %tritonrepo use FOLDER {' '.join(pairs)}"
        f"{' ...' if len(each) > _LISTED else ''}, or let `%tritonrepo try FOLDER` choose"
    )


_Sources = tuple[tuple[str, Mapping[str, str]], ...]


def _disjoint(found: list[Template], given: Mapping[str, str]) -> list[Template]:
    """Without parameters that hold a template with a value of its own, and without what is in others."""
    out: list[Template] = []
    for template in found:
        inside = out and out[-1].whole and template.span[1] <= out[-1].span[1]
        if inside and template.key in given:
            out[-1] = template
        elif not inside:
            out.append(template)
    return out


def _counts(template: Template, given: Mapping[str, str], environment: Mapping[str, str] | None) -> bool:
    """Whether it is a template for sure: ``"$KEY"`` may be any text, unless there is a value for it."""
    if template.whole:
        return template.key in given
    sure = not template.quoted or template.written.startswith("${")
    return sure or template.key in given or bool(environment and template.key in environment)


def _look_up(key: str, sources: _Sources) -> tuple[str, str | None]:
    return next(((origin, known[key]) for origin, known in sources if key in known), ("", None))


def _expand(value: str, sources: _Sources, chain: tuple[str, ...]) -> str:
    """Fill the templates in a value, too."""

    def one(found: re.Match[str]) -> str:
        parts = PARTS.fullmatch(found[0].strip("${}"))
        if parts is None or not found[0].startswith("${"):
            return found[0]
        key = parts[1]
        if key in chain:
            around = " -> ".join(visible(each) for each in (*chain, key))
            raise ValueError(
                f"its value leads back to itself ({around}); give it a value without ${{{visible(key)}}}"
            )
        inner = _look_up(key, sources)[1]
        if inner is None:
            return found[0] if parts[2] is None else parts[2]
        return _expand(inner, sources, (*chain, key))

    return IN_TEXT.sub(one, value)


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
