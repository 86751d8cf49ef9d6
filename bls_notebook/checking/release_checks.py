"""Check which releases of Triton a model needs, and which of their known bugs it would meet; see releases.py."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePath

from bls_notebook.records import open_regular_file, source_text
from bls_notebook.repository.source import version_folders

from .checked_model import CheckedModel, data_type
from .environments import environment_of, files_in
from .name_scope import NameScope, argument, is_call_of, last_name
from .python_source import PythonSource, names_of_api
from .records import SEVERITIES, Finding, finding
from .releases import changes, newest
from .response_origins import Origins
from .source_checks import tolerated

_SHELL = ";|&$`<>()[]{}\\\"'*?~#!"  # refused by the Python backend in names of models
_RESERVED = frozenset({"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers"})
_SYNTAX = {"TryStar": ("except*", "3.11"), "TypeAlias": ("type", "3.12")}  # by the class of the node
_NEW_IN_312 = frozenset({"itertools.batched", "typing.override", "typing.TypeAliasType", "math.sumprod"})
_HOOK = re.compile(r"(?:^|/)etc/conda/activate\.d/([^/]+)$")
_NUMPY = re.compile(r"(?:^|/)numpy-(\d+)\.([\w.]+)\.dist-info(?:/|$)")
_SAMPLE = 1 << 20  # bytes of a text file that are read
_MOST_HELPERS = 50  # modules beside model.py that are read


def release_findings(
    model: CheckedModel, models: Mapping[str, CheckedModel], release: str = "", image: bool = True
) -> Iterator[Finding]:
    """Yield what a release lacks for a model, and its known bugs that the model would meet.

    Without a `release`: problems of the newest one as warnings, and a note about the oldest release without problems.
    `image`: the server runs in NVIDIA's image, whose Python and NumPy matter too.
    """
    found: dict[tuple[str, str], Finding] = {}
    for code, each in _Uses(model, models).all():
        if image or not changes()[code].image:
            found.setdefault((code, each.what), each)  # the first place
    older: list[tuple[str, Finding]] = []
    for (code, _), each in found.items():
        change = changes()[code]
        if release and change.affects(release):
            yield each
        elif not release and change.affects(newest()):
            yield replace(each, severity=max(each.severity, "warning", key=SEVERITIES.index))
        elif not release and change.until:
            older.append((code, each))
    if sentence := needed_release(older):
        first = older[0][1]
        why = "; ".join(f"{each.what} ({_place(each)})" for _, each in older)
        yield finding("release-needed", model.name, first.file, first.line, what=sentence, why=why)


def release_problems(
    models: Mapping[str, CheckedModel], release: str, image: bool = True
) -> Mapping[str, tuple[str, ...]]:
    """Return sentences about what a release lacks for each model, without notes; see `release_findings`."""
    return {
        name: tuple(
            f"this server is release {release}: model {name!r}, {_place(each)}: {each.what}. {each.why}"
            for each in release_findings(model, models, release, image)
            if each.severity != "note"
        )
        for name, model in models.items()
    }


def later_changes(models: Mapping[str, CheckedModel], release: str) -> Iterator[str]:
    """Yield sentences about uses that the newest release, as which models run here, treats otherwise than a release."""
    for name, model in models.items():
        for code, each in dict(_Uses(model, models).all()).items():
            change = changes()[code]
            if change.affects(newest()) and not change.affects(release) and not change.image:
                what = f"{_place(each)}: {each.what}. {each.why}"
                yield f"here, model {name!r} runs as on release {newest()}, and the server is {release}: {what}"


def _place(found: Finding) -> str:
    """Return the file's name and the line, without the folder that the model's findings have in common."""
    return replace(found, file=Path(found.file).name).where


def needed_release(found: Sequence[tuple[str, Finding]]) -> str:
    """Return the oldest release that has all that a model needs and none of the bugs; empty without findings."""
    needs = [changes()[code].until for code, _ in found if code.startswith("release-too-old:")]
    bugs = [changes()[code].until for code, _ in found if code.startswith("release-bug:")]
    sentences = [f"it needs release {max(needs)} or newer"] if needs else []
    if bugs and max(bugs) > max(needs, default=""):
        sentences.append(f"known bugs that it would meet are fixed in release {max(bugs)}")
    return "; ".join(sentences)


@dataclass(frozen=True)
class _Uses:
    """What one model uses, as pairs of the rule and the finding."""

    model: CheckedModel
    models: Mapping[str, CheckedModel]

    def all(self) -> Iterator[tuple[str, Finding]]:
        model = self.model
        for code, change in changes().items():
            if change.field and _is_set(model, change.field):
                yield self._field(code, change.field)
        yield from self._backend()
        yield from self._queues()
        yield from self._correlation()
        if model.is_python:
            yield from self._name()
            yield from self._environment()
            for source in self._sources:
                yield from self._names(source)
                yield from self._calls(source)
            yield from self._methods()
            yield from self._callees()

    @cached_property
    def _sources(self) -> list[PythonSource]:
        """The model's code and the modules beside it that it mentions."""
        sources = {code.path: code for code in self.model.codes.values()}
        for code in [*sources.values()]:
            helpers = (file for file in code.siblings if file.stem in code.words)
            for file in islice(helpers, _MOST_HELPERS):
                sources.setdefault(file, PythonSource(file, source_text(file)))
        return [code for code in sources.values() if not code.mistake]

    def _field(self, code: str, field: str, value: str | None = None, **facts: object) -> tuple[str, Finding]:
        return code, self.model.in_config(code, field, value, **{**changes()[code].facts(), **facts})

    def _line(self, code: str, source: PythonSource, node: ast.AST, **facts: object) -> tuple[str, Finding]:
        line = getattr(node, "lineno", 0)
        return code, self.model.in_code(code, source, line, **{**changes()[code].facts(), **facts})

    def _name(self) -> Iterator[tuple[str, Finding]]:
        name = self.model.name
        refused = "".join(sorted(set(name) & set(_SHELL)))
        for code, is_found in (("release-too-new:name", bool(refused)), ("release-too-old:name", " " in name)):
            if is_found:
                facts = changes()[code].facts()
                yield code, finding(code, name, self.model.where, 0, name=refused, characters=_SHELL, **facts)

    def _backend(self) -> Iterator[tuple[str, Finding]]:
        config, files = self.model.given, _files_of(self.model.folder)
        is_unnamed = not (config.platform or config.backend)
        if config.platform == "torch_aoti" or (is_unnamed and "model.pt2" in files):
            yield self._field("release-too-old:aoti", "platform")
        is_tensorflow = config.platform.startswith("tensorflow_") or config.backend == "tensorflow"
        if is_tensorflow or (is_unnamed and files & {"model.savedmodel", "model.graphdef"}):
            yield self._field("release-too-new:tensorflow", "platform" if config.platform else "backend")

    def _queues(self) -> Iterator[tuple[str, Finding]]:
        config = self.model.given
        ordered = config.dynamic_batching.preserve_ordering
        if config.response_cache.enable and config.HasField("dynamic_batching") and not ordered:
            yield self._field("release-bug:cache", "response_cache")
        for step in config.ensemble_scheduling.step:
            callee = self.models.get(step.model_name)
            if callee is not None and _has_queue_limit(callee):
                field = "ensemble_scheduling.step.model_name"
                yield self._field("release-bug:queue", field, step.model_name, name=step.model_name)
        for name in _beside_others(self.model):
            callee = self.models.get(name)
            if callee is not None and callee.given.HasField("sequence_batching"):
                yield self._field("release-bug:beside", "ensemble_scheduling.step.model_name", name, name=name)

    def _correlation(self) -> Iterator[tuple[str, Finding]]:
        if _correlation_type(self.model) == "TYPE_STRING":
            yield self._field("release-bug:text-control", "sequence_batching.control_input.name")

    def _environment(self) -> Iterator[tuple[str, Finding]]:
        """Yield what needs the activation of its environment, and its NumPy."""
        path, file = environment_of(self.model)
        if not path:
            return
        field = "parameters.value.string_value"
        members = files_in(self.model.folder / file, "etc/conda/activate.d/*", "lib/python3*/site-packages/numpy-*")
        hooks = sorted({match[1] for name in members if (match := _HOOK.search(name))})
        reads = [source for source in self._sources if source.lines_with(r"\bCONDA_(PREFIX|DEFAULT_ENV)\b")]
        if hooks or reads:
            yield self._field(
                "release-too-new:hooks", field, path, name=", ".join(hooks[:3]) or "the code reads CONDA_PREFIX"
            )
        numpy = next((match for name in members if (match := _NUMPY.search(name))), None)
        if numpy and int(numpy[1]) > 1:
            yield self._field("release-too-old:numpy-packed", field, path, name=f"{numpy[1]}.{numpy[2]}")

    def _names(self, source: PythonSource) -> Iterator[tuple[str, Finding]]:
        """Yield names and syntax that some releases' Python or NumPy lack."""
        packed = "EXECUTION_ENV_PATH" in self.model.given.parameters
        harmless = tolerated(source.tree) | _version_tests(source.tree)
        used = {name: node for name, node in _dotted_names(source) if id(node) not in harmless}
        for code, change in changes().items():
            for name in change.names if not (change.image and packed) else ():
                if name in used and name.rpartition(".")[2] not in harmless:
                    shown = ast.unparse(used[name]) if isinstance(used[name], ast.Attribute) else name
                    python = "3.12" if name in _NEW_IN_312 else "3.11"
                    yield self._line(code, source, used[name], name=shown, python=python)
        for node in ast.walk(source.tree) if not packed else ():
            word, python = _SYNTAX.get(type(node).__name__, ("", ""))
            word, python = ("[...]", "3.12") if getattr(node, "type_params", None) else (word, python)
            if word and id(node) not in harmless:
                yield self._line("release-too-old:python", source, node, name=word, python=python)

    def _calls(self, source: PythonSource) -> Iterator[tuple[str, Finding]]:
        """Yield uses of Triton's API that some releases lack or answer differently."""
        origins = Origins(source) if "exec" in source.text else None
        harmless, modules = tolerated(source.tree), names_of_api(source.tree)
        for node, scope in source.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                if isinstance(node.value, ast.Name) and node.value.id in modules:
                    yield from self._api(source, node, scope)
                elif origins is not None and id(node) not in harmless and node.attr not in harmless:
                    yield from self._methods_of_values(source, node, scope, origins)
            elif isinstance(node, ast.Call):
                yield from self._arguments(source, node, scope)
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                text = scope.text(node.left)
                if text and "is not ready" in text and "message" in ast.unparse(node.comparators[0]):
                    yield self._line("release-too-new:words", source, node, name=text)
            if isinstance(node, (ast.Subscript, ast.Call)) and (key := _read_parameter(node, scope)) in _RESERVED:
                yield self._line("release-too-new:reserved", source, node, name=key)

    def _methods_of_values(
        self, source: PythonSource, node: ast.Attribute, scope: NameScope, origins: Origins
    ) -> Iterator[tuple[str, Finding]]:
        """Yield methods of responses, iterators and errors that some releases lack."""
        kinds = origins.kinds(node.value, scope) if node.attr in ("cancel", "parameters", "code") else ()
        called = isinstance(scope.parents.get(id(node)), ast.Call)
        if node.attr == "cancel" and "iterator" in kinds:
            yield self._line("release-too-old:cancel", source, node)
        elif node.attr == "parameters" and called and "response" in kinds:
            yield self._line("release-too-old:read-parameters", source, node)
        elif node.attr == "code" and "error" in kinds and not _only_passed(scope, node):
            yield self._line("release-too-old:error-code", source, node)

    def _api(self, source: PythonSource, node: ast.Attribute, scope: NameScope) -> Iterator[tuple[str, Finding]]:
        """Yield functions and classes of Triton's module with known bugs."""
        if node.attr == "load_model":
            yield self._line("release-bug:load", source, node)
        elif node.attr == "MetricFamily":
            yield self._line("release-bug:custom-metrics", source, node)
        elif node.attr == "is_model_ready" and not scope.inside(node, (ast.Try,)):
            yield self._line("release-too-new:ready", source, node)

    def _arguments(self, source: PythonSource, call: ast.Call, scope: NameScope) -> Iterator[tuple[str, Finding]]:
        name = last_name(call.func)
        if name == "InferenceResponse":
            given = argument(call, "parameters", 2)
            is_none = isinstance(given, ast.Constant) and given.value is None
            if not (given is None or is_none or scope.inside(call, (ast.Try,))):
                yield self._line("release-too-old:parameters", source, call)
        elif name == "InferenceRequest":
            names = scope.texts(argument(call, "requested_output_names", 3)) or []
            for twice in sorted({each for each in names if names.count(each) > 1}):
                yield self._line("release-too-new:outputs", source, call, name=twice)
            callee = self.models.get(scope.text(argument(call, "model_name", 4)) or "")
            text_id = scope.text(argument(call, "correlation_id", 1))
            if callee is not None and text_id and _correlation_type(callee) not in ("", "TYPE_STRING"):
                yield self._line("release-too-new:correlation", source, call, name=callee.name)
        elif text := _not_ascii(source, call, scope):
            yield self._line("release-too-old:ascii", source, call, name=text)

    def _methods(self) -> Iterator[tuple[str, Finding]]:
        """Yield the method `is_ready`, which releases before 26.03 do not call."""
        code = self.model.newest()
        body = code.model_class.body if code is not None and code.model_class else []
        for method in body:
            if code is None or not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if method.name == "is_ready":
                plain = method.args.posonlyargs + method.args.args
                needed = len(plain) - len(method.args.defaults) - (not _is_static(method))
                keywords = [d for d in method.args.kw_defaults if d is None]
                rule = "release-too-new:is-ready" if needed > 0 or keywords else "release-too-old:is-ready"
                yield self._line(rule, code, method)

    def _callees(self) -> Iterator[tuple[str, Finding]]:
        code = self.model.newest()
        if code is None or code.mistake:
            return
        streams = [c for c in code.calls if _asks_for_stream(c.sent)]
        on_gpu = _passes_gpu_tensors(self.model, code)
        for call in streams:
            callee = self.models.get(call.model)
            if on_gpu:
                yield self._line("release-bug:gpu", code, call.sent[0])
            if callee is not None and callee.decoupled and callee.is_python and _fails_in_stream(callee):
                yield self._line("release-bug:stream-error", code, call.sent[0], name=callee.name)


def _is_set(model: CheckedModel, field: str) -> bool:
    """Return whether a configuration sets a field, also one that this version of the schema lacks."""
    message = model.given
    *outer, name = field.split(".")
    for each in outer:
        if not message.HasField(each):
            return False
        message = getattr(message, each)
    known = message.DESCRIPTOR.fields_by_name.get(name)
    if known is None:
        return any(part in model.text.split("#")[0] for part in (f"{name}:", f"{name} {{"))
    return bool(message.HasField(name) if known.message_type else getattr(message, name))


def _files_of(folder: Path) -> set[str]:
    """Return the names in the version folders of a model."""
    return {file.name for version in version_folders(folder).values() for file in version.iterdir()}


def _has_queue_limit(model: CheckedModel) -> bool:
    batching = model.given.dynamic_batching
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    return any(policy.max_queue_size for policy in policies)


def _beside_others(model: CheckedModel) -> list[str]:
    """Return the models of an ensemble's steps that neither need nor feed some other step."""
    steps = model.given.ensemble_scheduling.step
    makers = {tensor: number for number, step in enumerate(steps) for tensor in step.output_map.values()}
    needs = [{makers[tensor] for tensor in step.input_map.values() if tensor in makers} for step in steps]
    for _ in steps:  # at most as many rounds as the longest chain
        more = [direct.union(*(needs[number] for number in direct)) for direct in needs]
        if more == needs:
            break
        needs = more
    several = range(len(steps))
    free = (n for n in several if any(n != m and n not in needs[m] and m not in needs[n] for m in several))
    return sorted({steps[n].model_name for n in free})


def _correlation_type(model: CheckedModel) -> str:
    """Return the data type of the control input with the correlation ID; empty without one."""
    for tensor in model.given.sequence_batching.control_input:
        for control in tensor.control:
            if control.kind == control.CONTROL_SEQUENCE_CORRID:
                return data_type(control)
    return ""


def _dotted_names(source: PythonSource) -> Iterator[tuple[str, ast.AST]]:
    """Yield the full dotted names of imported modules, their attributes, and builtins, with the nodes."""
    bound: dict[str, str] = {}
    assigned = {n.id for n in ast.walk(source.tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
                top = alias.name.partition(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}", node
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            first, dot, rest = ast.unparse(node).partition(".")
            if first in bound and first not in assigned and dot:
                yield f"{bound[first]}.{rest}", node
        elif isinstance(node, ast.Name) and node.id not in assigned and node.id not in bound:
            yield node.id, node


def _version_tests(tree: ast.Module) -> set[int]:
    """Return nodes below a condition about a version."""
    tests = (n for n in ast.walk(tree) if isinstance(n, (ast.If, ast.IfExp)) and "version" in ast.unparse(n.test))
    return {id(inner) for test in tests for inner in ast.walk(test)}


def _not_ascii(source: PythonSource, call: ast.Call, scope: NameScope) -> str:
    """Return the text that a call prints, or reads without an encoding, if it is not ASCII; empty if it is."""
    name, is_plain = last_name(call.func), isinstance(call.func, ast.Name)
    if name == "print" and is_plain and argument(call, "file", -1) is None:
        return next((repr(text) for text in _constants(call, scope) if not text.isascii()), "")
    if name not in ("open", "read_text"):
        return ""
    mode = scope.text(argument(call, "mode", int(is_plain))) if name == "open" else ""
    place = 0 if name == "read_text" else 2 + is_plain
    if "b" in (mode or "") or argument(call, "encoding", place) is not None:
        return ""
    read = {PurePath(text).name for text in _constants(call, scope)}
    for folder in (source.path.parent, source.path.parent.parent) if read else ():
        for file in (folder / each for each in read):
            with suppress(OSError, ValueError), open_regular_file(file) as opened:
                if not opened.read(_SAMPLE).isascii():
                    return f"the file {file.name!r}"
    return ""


def _constants(call: ast.Call, scope: NameScope) -> Iterator[str]:
    """Yield the texts in a call and in the values of its names."""
    for node in ast.walk(call):
        value = scope.value(node) if isinstance(node, ast.Name) else node
        for part in ast.walk(value) if value is not None and value is not node else (node,):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def _only_passed(scope: NameScope, node: ast.Attribute) -> bool:
    """Return whether a code is only passed to another error."""
    call = scope.parents.get(id(node))
    parent = scope.parents.get(id(call))
    return isinstance(parent, ast.Call) and last_name(parent.func) == "TritonError"


def _read_parameter(node: ast.Subscript | ast.Call, scope: NameScope) -> object:
    """Return the key that an expression reads from a request's parameters; None for any other expression."""
    if isinstance(node, ast.Subscript):
        owner, key = node.value, node.slice
    elif isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        owner, key = node.func.value, node.args[0]
    else:
        return None
    loaded = scope.value(owner)
    if isinstance(loaded, ast.Call) and ast.unparse(loaded.func) in ("json.loads", "loads") and loaded.args:
        read = scope.value(loaded.args[0])
        if is_call_of(read, "parameters"):
            return scope.text(key)
    return None


def _is_static(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(last_name(each) == "staticmethod" for each in method.decorator_list)


def _asks_for_stream(sent: Sequence[ast.Call]) -> bool:
    """Return whether a request is sent with `decoupled=True`."""
    values = (argument(call, "decoupled", 0) for call in sent)
    return any(value is not None and getattr(value, "value", True) for value in values)


def _passes_gpu_tensors(model: CheckedModel, code: PythonSource) -> bool:
    """Return whether a model keeps its inputs on the GPU, or asks for outputs there."""
    parameters = model.given.parameters
    key = "FORCE_CPU_ONLY_INPUT_TENSORS"
    stays = key in parameters and parameters[key].string_value == "no"
    groups = model.given.instance_group
    on_cpu = bool(groups) and all(group.kind == group.KIND_CPU for group in groups)
    return (stays and not on_cpu) or "TRITONSERVER_MEMORY_GPU" in code.words


def _fails_in_stream(model: CheckedModel) -> bool:
    """Return whether a decoupled model certainly sends error responses."""
    code = model.newest()
    return code is not None and any(argument(call, "error", 1) for call, _ in code.calls_of("InferenceResponse"))
