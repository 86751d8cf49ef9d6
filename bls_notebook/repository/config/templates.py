"""Find and fill templates in a config.pbtxt, such as ``${max_batch_size}``.

Public repositories contain configurations that a script must fill first. Templates are ``${key}`` and
``${key:-value}``; outside quotes also ``{{ key }}``, ``$KEY``, ``#KEY`` behind a colon, in ``TYPE_#KEY`` or in a list,
``<KEY>``, ``@KEY@``, ``%KEY%``, ``{key}``, and a word in capitals in place of a number; ``"$KEY"`` and ``"#KEY"`` may
be templates. Comments, ``$${key}`` and ``$$KEY`` are not. A value comes from the caller, the environment, or the
template's default; otherwise it is a harmless value that fits the field, or the folder's name for that of the model. A
template inside quotes without a value stays unchanged: Triton passes it to the model as text. Statements of Jinja
outside quotes are run first, see `render_statements`.
"""

from __future__ import annotations

import os
import re
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bls_notebook.engine.errors import ConfigError
from bls_notebook.records.models import Fill
from bls_notebook.records.remedy_words import Remedy, remedy
from bls_notebook.records.units import listed
from bls_notebook.records.visible_text import visible

from .jinja_statements import STATEMENT, render_statements
from .protobuf_message import model_config_class

_TOKEN = re.compile(
    r"""(?P<template>(?:(?<=_)|(?<=:)|(?<=:[ ]))\#[A-Z]\w*|\$\{[^{}\n]*\}|\{\{[^{}\n]+\}\}|(?<!\$)\$[A-Za-z_]\w*
        |(?:(?<=[\[,])|(?<=[\[,][ ]))\#[A-Za-z_]\w*(?=\s*[,\]])(?=[^\n]*\])
        |<[A-Z][A-Z0-9_]*>|@[A-Za-z_]\w*@|%[A-Z_]\w*%|\{[ ]*[A-Za-z_]\w*[ ]*\}|<%=[^%\n]*%>)
    |(?P<comment>\#[^\n]*)
    |(?P<text>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
    |(?P<unclosed>"[^"\\\n]*(?:\\.[^"\\\n]*)*|'[^'\\\n]*(?:\\.[^'\\\n]*)*)
    |(?P<literal>\$\$\{[^{}\n]*\}|\$\$\w+)
    |(?P<word>[A-Za-z_][\w.]*|[-+]?\.?\d[\w.]*)
    |(?P<mark>[{}<>\[\]:;,])""",
    re.VERBOSE,
)
IN_TEXT = re.compile(r"(?<!\$)(?:\$\{[^{}\n]*\}|\$[A-Z_][A-Z0-9_]*)|\{\{[^\n\"]+?\}\}|#[A-Za-z_]\w*")
PARTS = re.compile(r"\s*([\w.-]+)\s*(?::?-(.*)|\|\s*default\((.*?)\).*|\|.*)?")
_MARKS = "#${}<>@%= "  # around keys
_DEEPEST = 100  # messages in messages
_DEEPEST_NAMED = 4  # messages around a field that findings name
_CAPITALS = re.compile(r"_*[A-Z][A-Z0-9_]+")
_PARAMETER = ["parameters", "value", "string_value"]

# Harmless values of fields, for any key. Other fields get the value of an unset field.
_BY_FIELD = {
    "max_batch_size": "8", "preferred_batch_size": "8", "count": "1", "dims": "-1", "model_version": "-1",
    "data_type": "TYPE_FP32",
}  # fmt: skip
# Harmless values of keys that tensorrtllm_backend documents, where the field does not determine one.
_BY_KEY = {
    "batching_strategy": "inflight_fused_batching", "encoder_input_features_data_type": "TYPE_FP16",
    "tensorrt_llm_model_name": "tensorrt_llm", "triton_backend": "tensorrtllm",
}  # fmt: skip


@dataclass(frozen=True)
class Template:
    """A template in a configuration's text, and the field that it fills."""

    key: str
    written: str  # the template's text
    otherwise: str | None  # the template's default: ${key:-value}
    place: str  # 'instance_group.count', 'parameters["engine_dir"]'
    line: int
    span: tuple[int, int]
    quoted: bool
    listed: bool  # between brackets
    before: str = ""  # prefix of the value: KIND_ of KIND_${key}
    field: Any = None  # protobuf's descriptor of the field; None if the configuration has no such field
    whole: bool = False  # a parameter's complete value, which can be replaced by the parameter's key

    @property
    def is_number(self) -> bool:
        whole = ("CPPTYPE_INT32", "CPPTYPE_INT64", "CPPTYPE_UINT32", "CPPTYPE_UINT64")
        return self.field is not None and self.field.cpp_type in [getattr(self.field, kind) for kind in whole]

    @property
    def harmless(self) -> str | None:
        """A value that does no harm here; None if none is known."""
        if self.key in _BY_KEY:
            return _BY_KEY[self.key]
        field = self.field
        if field is None or field.cpp_type in (field.CPPTYPE_STRING, field.CPPTYPE_MESSAGE):
            return None
        if field.name in _BY_FIELD:
            return _BY_FIELD[field.name]
        if field.enum_type is not None:
            return next((v.name for v in field.enum_type.values if v.name.startswith(self.before)), None)
        return "false" if field.cpp_type == field.CPPTYPE_BOOL else "0"

    def rendered(self, value: str) -> str:
        """Return the text of a value in this place, or raise a ValueError that names the expected type."""
        field = self.field
        if self.quoted or field is None:
            return _escaped(value) if self.quoted else value
        if field.cpp_type == field.CPPTYPE_STRING:
            return f'"{_escaped(value)}"'
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            return value
        values = [value]
        if field.is_repeated:
            values = [part.strip() for part in value.strip().removeprefix("[").removesuffix("]").split(",")]
        text = ", ".join(_typed(part, field) for part in values)
        if field.enum_type is not None:
            text = text.removeprefix(self.before)
        return text if self.listed or len(values) == 1 else f"[ {text} ]"


def scan(text: str) -> Iterator[Template]:
    """Yield the templates in a text, and complete values of parameters (`whole`); ``"$KEY"`` may be plain text."""
    ends = [found.start() for found in re.finditer("\n", text)]  # of lines
    for names, field, keys, token, in_list, _ in _settings(text):
        if token.lastgroup == "mark":
            continue
        path, quoted = [*names, field], token.lastgroup == "text"
        if quoted and path == _PARAMETER and keys[1]:
            line, span = bisect(ends, token.start()) + 1, (token.start() + 1, token.end() - 1)
            place = f'parameters["{keys[1]}"]'
            yield Template(keys[1], token[0], None, place, line, span, True, False, whole=True)
        for found in IN_TEXT.finditer(text, *token.span()) if quoted else (token,):
            template = _template(found, bisect(ends, found.start()) + 1, path, keys, quoted, in_list)
            if template is not None and (token.lastgroup != "word" or template.is_number):
                yield template


def lines_of(text: str) -> dict[tuple[tuple[str, ...], str | None], int]:
    """Return the lines on which a config.pbtxt first sets its fields.

    The keys are the names of the messages and the field, and the value: unquoted, empty for messages, None for any.
    """
    ends = [found.start() for found in re.finditer("\n", text)]  # of lines
    lines: dict[tuple[tuple[str, ...], str | None], int] = {}
    for names, name, _, token, _, named in _settings(text):
        if len(names) <= _DEEPEST_NAMED:
            message = token.lastgroup == "mark"
            line, field = bisect(ends, named if message else token.start()) + 1, (*names, name)
            lines.setdefault((field, None), line)
            lines.setdefault((field, "" if message else token[0].strip("\"'")), line)
    return lines


def _settings(text: str) -> Iterator[tuple[list[str], str, list[str], re.Match[str], bool, int]]:
    """Yield the settings of a text, also of an invalid one.

    For each value, and for the brace of each message: the names of the enclosing messages, outermost first; its name;
    the keys of these messages; its token; whether it is in a list of values; the position of its name. The caller must
    not keep the lists, which change with the next setting.
    """
    names: list[str] = []  # of the open messages
    lists: list[bool] = []  # whether each open message is in a list of values
    field, keys, named = "", [""], 0
    value = listed = False
    for token in _TOKEN.finditer(text):
        kind, word = token.lastgroup, token[0]
        if kind == "mark":
            if word == ":":
                value = True
            elif word == "[":
                listed = value
            elif word == "]":
                value = listed = False
            elif word in "{<":
                yield names, field, keys, token, listed, named
                if len(names) > _DEEPEST:  # no configuration, and each setting costs this depth
                    return
                names.append(field)
                lists.append(listed)
                keys.append("")
                value = listed = False
            elif word in "}>" and names:
                field, listed = names.pop(), lists.pop()
                keys.pop()
                value = listed
        elif kind == "word" and not value:
            field, named = word, token.start()
        elif kind in ("text", "template", "word"):
            if kind == "text" and field == "key":
                keys[-1] = word[1:-1]
            yield names, field, keys, token, listed, named
            value = listed


def _template(
    found: re.Match[str], line: int, path: list[str], keys: list[str], quoted: bool, listed: bool
) -> Template | None:
    written = found[0]
    parts = PARTS.fullmatch(written.strip(_MARKS))
    if parts is None or not (written.startswith(tuple(_MARKS)) or _CAPITALS.fullmatch(written)):
        return None
    place = ".".join(filter(None, path))
    named = next((key for key in reversed(keys) if key), "")
    if named and path[0] == "parameters":
        place = f'parameters["{named}"]'
    otherwise = parts[2] if written.startswith("${") else parts[3] and parts[3].strip("'\"")
    before = re.search(r"\w*$", found.string[max(0, found.start() - 64) : found.start()])
    message, field = model_config_class().DESCRIPTOR, None
    for name in filter(None, path):
        field = None if message is None else message.fields_by_name.get(name)
        message = None if field is None else field.message_type
    return Template(
        parts[1], written, otherwise, place, line, found.span(), quoted, listed,
        "" if before is None or quoted else before[0], field,
    )  # fmt: skip


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'").replace("\n", "\\n")


def _typed(value: str, field: Any) -> str:
    got = f"got {visible(value)!r}"
    if field.enum_type is not None:
        known = [each.name for each in field.enum_type.values]
        fits = [name for name in known if name == value or name.endswith(f"_{value.upper()}")]
        if not fits:
            raise ValueError(f"{got}, expected one of: {', '.join(known)}")
        return str(fits[0])
    if field.cpp_type == field.CPPTYPE_BOOL:
        if value.strip().lower() not in ("true", "false"):
            raise ValueError(f"{got}, expected true or false")
        return value.strip().lower()
    whole = field.cpp_type not in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE)
    try:
        return str(int(value) if whole else float(value))
    except ValueError:
        raise ValueError(f"{got}, expected a {'whole ' if whole else ''}number") from None


_LISTED = 6


@dataclass(frozen=True)
class Filled:
    """The text of a configuration with filled templates, the values, and the templates that stay open."""

    text: str
    fills: tuple[Fill, ...] = ()
    open: tuple[Template, ...] = ()

    @property
    def unread(self) -> tuple[Template, ...]:
        """The open templates outside quotes, which make the configuration unreadable."""
        return tuple(template for template in self.open if not template.quoted)


def fill_templates(
    text: str,
    values: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    defaults: bool = False,
    model: str = "",
) -> Filled:
    """Fill the templates in the text of a config.pbtxt; a ConfigError if a value does not fit.

    `values` come first, by key or ``model.key``; a key of the configuration's ``parameters`` replaces that parameter's
    value. Next come the `environment` and the template's own default. With `defaults`, remaining templates get a
    harmless value for their field, or for their key if tensorrtllm_backend documents it. Text has no harmless value, so
    most templates in text stay open.
    """
    given = {k: str(value).lower() if isinstance(value, bool) else str(value) for k, value in (values or {}).items()}
    given |= {key[len(model) + 1 :]: value for key, value in given.items() if key.startswith(f"{model}.")}
    statements = STATEMENT.findall(_unquoted(text))
    runs, needed = bool(statements and (defaults or given)), list[str]()
    if runs:
        text, needed = render_statements(text, {**(environment or {}), **given}, model)
    found = _disjoint([candidate for candidate in scan(text) if _counts(candidate, given, environment)], given)
    sources: tuple[tuple[str, Mapping[str, str]], ...] = (
        ("given", given),
        ("environment", environment or {}),
        ("in the file", {t.key: t.otherwise for t in reversed(found) if t.otherwise is not None}),
        ("default", {t.key: t.harmless for t in reversed(found) if defaults and t.harmless is not None}),
        ("its folder", {t.key: model for t in found if defaults and model and t.place == "name"}),
    )
    fills: dict[str, tuple[str, str]] = {}
    places: dict[str, list[str]] = {}
    unfilled: list[Template] = []
    pieces: list[str] = []
    at = 0
    for template in found:
        key = template.key
        origin, known = next(((origin, known) for origin, known in sources if key in known), ("", None))
        if known is None:
            unfilled.append(template)
            continue
        value = known[key]
        try:
            written = template.rendered(value)
        except ValueError as error:
            raise ConfigError(
                f"model '{model}': config.pbtxt:{template.line}: template {visible(template.written)} "
                f"({template.place}): {error}"
            ) from None
        pieces += text[at : template.span[0]], written
        at = template.span[1]
        fills[key] = value, origin
        places.setdefault(key, []).append(template.place)
    filled = tuple(Fill(key, *fills[key], tuple(places[key])) for key in fills)
    for name in needed:
        origin, known = next((source for source in sources[:2] if name in source[1]), ("", {}))
        if known:
            filled += (Fill(name, known[name], origin, (statements[0],)),)
        elif name not in fills:
            unfilled.append(Template(name, statements[0], None, statements[0], 1, (0, 0), True, False))
    for written in statements if not runs else ():
        unfilled.append(_statement(written, text))
    return Filled("".join((*pieces, text[at:])), filled, tuple(unfilled))


def _statement(written: str, text: str) -> Template:
    """Return a statement as a template; its key is its last name."""
    at = text.find(written)
    key = re.findall(r"[A-Za-z_]\w*", written)[-1]
    return Template(key, written, None, "a statement", text.count("\n", 0, at) + 1, (at, at), False, False)


def _unquoted(text: str) -> str:
    """Return a text without its quotations and comments."""
    return _TOKEN.sub(lambda token: token[0] if token.lastgroup not in ("text", "comment") else '""', text)


def filled_config(config: object, values: Mapping[str, object] | None, model: str) -> tuple[object, tuple[str, ...]]:
    """Fill the templates of a configuration's text; return it, and a warning that lists the filled values.

    With ``values`` None, no template is filled. Missing values come from the environment or are defaults. If a value
    does not fit, a ConfigError is returned in place of the configuration.
    """
    if values is None or not isinstance(config, str):
        return config, ()
    try:
        filled = fill_templates(config, values, environment=os.environ, defaults=True, model=model)
    except ConfigError as error:
        return error, ()
    fills = ", ".join(f"{visible(f.key)}={visible(f.value)} ({f.origin})" for f in filled.fills)
    return filled.text, (f"templates of config.pbtxt were filled: {fills}",) if fills else ()


def open_reason(templates: tuple[Template, ...]) -> str:
    """Return the reason why a configuration with open templates is unreadable, and the remedy."""
    first = {template.key: template for template in reversed(templates)}
    unique = sorted(first.values(), key=lambda template: template.span)
    shown = listed([visible(template.written) for template in unique], _LISTED)
    values = {visible(t.key): t.harmless or "VALUE" for t in unique[:_LISTED]}
    more = " ..." if len(unique) > _LISTED else ""
    use = Remedy(
        f"`bls.ModelRepository('FOLDER', fill={values})`{more}",
        f"`%tritonrepo use FOLDER {' '.join(f'--fill {key}={value}' for key, value in values.items())}`{more}",
    )
    subject = "a template is" if len(unique) == 1 else f"{len(unique)} templates are"
    return f"{subject} not filled: {shown}; give values: {use}, or let {remedy('{try}', folder='FOLDER')} choose"


def _disjoint(found: list[Template], given: Mapping[str, str]) -> list[Template]:
    """Remove overlaps: a template with a given value replaces its parameter's value, others are dropped inside it."""
    out: list[Template] = []
    for template in found:
        inside = out and out[-1].whole and template.span[1] <= out[-1].span[1]
        if inside and template.key in given:
            out[-1] = template
        elif not inside:
            out.append(template)
    return out


def _counts(template: Template, given: Mapping[str, str], environment: Mapping[str, str] | None) -> bool:
    """Return whether text is certainly a template: ``"$KEY"`` may be plain text unless there is a value for it."""
    if template.whole:
        return template.key in given
    sure = not template.quoted or template.written.startswith("${") or template.place == "name"
    if template.quoted and template.written.startswith("{{"):  # or a template of the model's own, as of a chat
        return sure or template.otherwise is not None or template.key in given
    return sure or template.key in given or bool(environment and template.key in environment)
