"""Check how a model uses Triton's Python API: arguments of calls, methods that are not called, attributes never set.

The values of arguments are known only if the source says so; other expressions cause no finding.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from bls_notebook import pb_utils
from bls_notebook.backends import CLASS_NAME
from bls_notebook.repository import API

from .checked_model import CheckedModel
from .name_scope import Function, NameScope, alternatives, argument, is_call_of, last_name, spreads
from .python_source import PythonSource
from .records import Finding

# The kind of value that each parameter accepts; "[x]" is a list of x.
_ACCEPTED = {
    "Tensor": {"name": "string", "numpy_array": "array"},
    "InferenceRequest": {
        "inputs": "[Tensor]", "requested_output_names": "[string]", "model_name": "string", "model_version": "number"
    },
    "InferenceResponse": {"output_tensors": "[Tensor]", "error": "TritonError"},
    "TritonError": {"message": "string"},
    "get_input_tensor_by_name": {"inference_request": "request", "name": "string"},
    "get_output_tensor_by_name": {"inference_response": "response", "name": "string"},
}  # fmt: skip
_REQUIRED = ("inputs", "requested_output_names", "model_name")  # of a request; its signature here has defaults
_RESULTS = {
    **{name: name for name in ("Tensor", "TritonError", "InferenceResponse", "InferenceRequest")},
    "get_input_tensor_by_name": "Tensor",
    "get_output_tensor_by_name": "Tensor",
}
_TENSORS = ("inputs", "output_tensors")  # methods that return lists of tensors
_TEXTS = frozenset({"str", "repr", "traceback.format_exc"})
_METHODS = frozenset({"has_error", "as_numpy", "is_cancelled"})  # that other classes hardly have
_USES = (ast.If, ast.While, ast.IfExp, ast.UnaryOp, ast.BoolOp, ast.BinOp, ast.Subscript, ast.Attribute)
_CONTROL = frozenset({"load_model", "unload_model", "is_model_ready"})
_AS_TEXT = frozenset({"str", "print", "TritonModelException", "log_error", "log_info", "log_warn"})
_PARAMETERS = {"__init__": 0, "initialize": 1}  # parameters besides `self`
_DYNAMIC = re.compile(r"AttributeError|\b(has|get|set)attr\b|__dict__|__slots__|\bvars\(|(?<![.\w])exec\(|\blocals\(")


def api_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield calls of Triton's API that raise, and reads of attributes and parameters that do not exist."""
    code = model.newest()
    if code is None or code.mistake:
        return
    for node, scope in code.nodes:
        if isinstance(node, ast.Call):
            for what in _call_problems(scope, node):
                yield model.in_code("call-refused", code, node.lineno, what=what)
            yield from _files_findings(model, code, scope, node)
            if last_name(node.func) in _AS_TEXT and node.args and _is_error(scope, node.args[0]):
                yield model.in_code("error-as-text", code, node.lineno, what=ast.unparse(node.args[0]))
            if last_name(node.func) == "as_numpy" and node.args and "tritonclient" not in code.words:
                yield model.in_code("call-refused", code, node.lineno, what="`as_numpy` has no parameters")
        elif isinstance(node, ast.FormattedValue) and _is_error(scope, node.value):
            yield model.in_code("error-as-text", code, node.lineno, what=ast.unparse(node.value))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = node.value.func
            if last_name(function) == "append" and ast.unparse(node.targets[0]) == ast.unparse(function)[:-7]:
                yield model.in_code("append-assigned", code, node.lineno, what=ast.unparse(node.targets[0]))
        elif isinstance(node, ast.Attribute) and node.attr in _METHODS and isinstance(node.ctx, ast.Load):
            if isinstance(scope.parents.get(id(node)), _USES) and not ast.unparse(node).startswith("pb_utils."):
                yield model.in_code("method-not-called", code, node.lineno, what=ast.unparse(node))
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield from _key_findings(model, code, scope, node, node.slice.value)
    subscripts = ((scope, node) for node, scope in code.nodes if isinstance(node, ast.Subscript))
    by_place = next((node for scope, node in subscripts if _is_input_by_place(scope, node)), None)
    if by_place is not None and (model.controls or len(model.inputs) > 1):
        rule = "input-by-place:added" if model.controls else "input-by-place"
        name = next(iter(model.inputs), "NAME")
        yield model.in_code(rule, code, by_place.lineno, what=ast.unparse(by_place), name=name)
    for method in code.model_class.body if code.model_class else ():
        if isinstance(method, Function) and method.name in _PARAMETERS and not method.decorator_list:
            parameters = [*method.args.posonlyargs, *method.args.args]
            needed, sent = len(parameters) - len(method.args.defaults), 1 + _PARAMETERS[method.name]
            if needed > sent or (len(parameters) < sent and not method.args.vararg):
                what = "self" if sent == 1 else "self, args"
                yield model.in_code("method-parameters", code, method.lineno, name=method.name, what=what)
    yield from _attribute_findings(model, code)
    yield from _start_findings(model, code)


def _files_findings(model: CheckedModel, code: PythonSource, scope: NameScope, call: ast.Call) -> Iterator[Finding]:
    """Yield loads of several files."""
    if scope.dotted_name(call.func) == f"{API}.load_model":
        files = scope.origin(argument(call, "files", 2))
        if isinstance(files, ast.Dict) and len(files.keys) > 1:
            yield model.in_code("load-files", code, call.lineno)


def _start_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield BLS requests in `initialize` and the functions that it calls, and model control before a server started."""
    initialize = code.method(CLASS_NAME, "initialize")
    todo = [] if initialize is None else [initialize]
    for scope in todo:  # the loop extends `todo`
        source = scope.source
        for call in scope.nodes:
            if not isinstance(call, ast.Call) or scope.inside(call, (ast.Try,)) or not isinstance(source, PythonSource):
                continue
            module, _, name = scope.dotted_name(call.func).rpartition(".")
            callee = source.helper(call.func, scope)
            if module == API and name in _CONTROL:
                yield model.in_code("start-refused", source, call.lineno, name=name)
            elif callee is not None and callee not in todo and not callee.yields:
                todo.append(callee)
            elif _is_send(scope, call.func):
                yield model.in_code("call-refused:initialize", source, call.lineno, name=ast.unparse(call)[:80])


def _is_error(scope: NameScope, node: ast.expr) -> bool:
    """Return whether an expression is the error of a response."""
    value = scope.origin(node)
    return is_call_of(value, "error") and not (value.args or value.keywords)


def _is_send(scope: NameScope, function: ast.expr) -> bool:
    """Return whether a call of this function sends a request."""
    if not isinstance(function, ast.Attribute) or function.attr not in ("exec", "async_exec"):
        return False
    return kind_of(scope, function.value) == "InferenceRequest"


def _is_input_by_place(scope: NameScope, node: ast.Subscript) -> bool:
    """Return whether this is an element, with a constant index, of what `request.inputs()` returned."""
    is_place = isinstance(node.slice, ast.Constant) and type(node.slice.value) is int
    return is_place and is_call_of(scope.origin(node.value), "inputs")


def kind_of(scope: NameScope, node: ast.expr | None, depth: int = 16) -> str:
    """Return the certain kind of an expression: "string", "array", "Tensor", ...; empty if unknown."""
    if isinstance(node, ast.Name) and scope.values(node.id) is None:
        caught = any(isinstance(n, ast.ExceptHandler) and n.name == node.id for n in scope.nodes)
        return "exception" if caught else ""
    kinds = {_kind(scope, value, depth - 1) for value in alternatives(scope.origin(node))} if depth else set()
    return kinds.pop() if len(kinds) == 1 else ""


def _kind(scope: NameScope, value: ast.expr | None, depth: int) -> str:
    if isinstance(value, ast.Constant) and type(value.value) in (str, int, float):
        return "string" if isinstance(value.value, str) else "number"
    if isinstance(value, ast.BinOp):
        # Half as deep, because `b = a + a; c = b + b; ...` has exponentially many paths.
        return "string" if "string" in (kind_of(scope, side, depth // 2) for side in _operands(value)) else ""
    if isinstance(value, (ast.JoinedStr, ast.List, ast.ListComp, ast.Dict)):
        return {"JoinedStr": "string", "Dict": "dictionary"}.get(type(value).__name__, "list")
    if isinstance(value, ast.Attribute):
        sent = scope.origin(value.value)
        of_response = isinstance(sent, ast.Call) and last_name(sent.func) == "exec" and value.attr == "error"
        return "method that is not called" if of_response or value.attr in _METHODS else ""
    if isinstance(value, ast.Subscript) and not isinstance(value.slice, ast.Slice):
        return "Tensor" if is_call_of(scope.origin(value.value), *_TENSORS) else ""
    if not isinstance(value, ast.Call):
        return ""
    module, _, function = scope.dotted_name(value.func).rpartition(".")
    if module == "numpy" and function == "array" and len(value.args) == 1 and not value.keywords:
        items = value.args[0].elts if isinstance(value.args[0], ast.List) else []
        return "array of str" if items and all(kind_of(scope, item) == "string" for item in items) else "array"
    if module == API:
        return _RESULTS.get(function, "")
    written = ast.unparse(value.func)
    if written in _TEXTS or (last_name(value.func) == "format" and written[:1] in "'\""):
        return "string"
    if module == "torch" and function in ("tensor", "from_numpy", "zeros", "ones", "stack", "cat", "argmax", "softmax"):
        return "PyTorch tensor"
    method = value.func.attr if isinstance(value.func, ast.Attribute) else ""
    return {"as_numpy": "array", "tolist": "list"}.get(method, "")


_OPERANDS = 8


def _operands(value: ast.BinOp) -> Iterator[ast.expr]:
    """Yield operands of an expression such as ``a + b + c``, few of a long one."""
    left: list[ast.expr] = [value.left, value.right]
    for _ in range(2 * _OPERANDS):
        if not left:
            return
        side = left.pop(0)
        if isinstance(side, ast.BinOp):
            left[:0] = [side.left, side.right]
        else:
            yield side


def is_tested(scope: NameScope, node: ast.expr) -> bool:
    """Return whether the code tests what the value of an expression is."""
    tests = (
        n for n in scope.nodes if isinstance(n, ast.Call) and last_name(n.func) in ("isinstance", "hasattr", "type")
    )
    return any(test.args and ast.unparse(test.args[0]) == ast.unparse(node) for test in tests)


def _call_problems(scope: NameScope, call: ast.Call) -> Iterator[str]:
    """Yield why a call of Triton's API raises a TypeError."""
    module, _, name = ast.unparse(call.func).rpartition(".")
    if name == "append" and isinstance(scope.node, Function) and scope.node.name == "execute" and len(call.args) == 1:
        returned = [ast.unparse(n.value) for n in scope.nodes if isinstance(n, ast.Return) and n.value is not None]
        kind = kind_of(scope, call.args[0])
        if returned == [module] and kind not in ("", "InferenceResponse"):
            yield f"`execute` returns a list that contains a value of another kind: {kind}"
    if module != "pb_utils" or name not in _ACCEPTED or spreads(call):
        return
    signature = inspect.signature(getattr(pb_utils, name))
    try:
        bound = signature.bind(*call.args, **{word.arg or "": word.value for word in call.keywords})
    except TypeError as error:
        yield f"`{name}`: {error}; its parameters are {', '.join(signature.parameters)}"
        return
    if missing := [p for p in _REQUIRED if name == "InferenceRequest" and p not in bound.arguments]:
        yield f"`{name}` needs {' and '.join(missing)}"
    for parameter, expected in _ACCEPTED[name].items():
        node = bound.arguments.get(parameter)
        kind = "" if node is not None and is_tested(scope, node) else kind_of(scope, node)
        if parameter == "error" and kind in ("string", "exception"):  # has its own rule
            continue
        fits = kind in ("", expected) or (expected[0] == "[" and kind == "list") or expected == "message"
        if expected in ("request", "response"):
            fits = kind not in ("string", "list", "Tensor", "array")
        elif name == "TritonError":
            fits = kind in ("", "string", "exception")
        if not fits:
            yield f"parameter {parameter} of `{name}`: got a value of another kind: {kind}"
        items = node.elts if expected[0] == "[" and isinstance(node, ast.List) else []
        for kind in filter(None, (kind_of(scope, item) for item in items)):
            if kind != expected[1:-1]:
                yield f"parameter {parameter} of `{name}`: its list has a value of another kind: {kind}"


def _key_findings(
    model: CheckedModel, code: PythonSource, scope: NameScope, node: ast.Subscript, key: object
) -> Iterator[Finding]:
    """Yield subscripts that raise: of texts and lists by a name, and of parameters that config.pbtxt lacks."""
    owner = scope.origin(node.value)
    if not isinstance(key, str):
        return
    if is_call_of(owner, "parameters"):
        yield model.in_code("call-refused", code, node.lineno, what=f"`{ast.unparse(owner)}` is JSON text, not a dict")
    if is_call_of(owner, *_TENSORS):
        what = f"`{ast.unparse(owner.func)}()` is a list, which has no item {key!r}"
        yield model.in_code("call-refused", code, node.lineno, what=what)
    name = owner.slice.value if isinstance(owner, ast.Subscript) and isinstance(owner.slice, ast.Constant) else ""
    if name == "model_config" and isinstance(owner, ast.Subscript) and ast.unparse(owner.value) == "args":
        yield model.in_code("config-not-parsed", code, node.lineno)
    guarded = scope.inside(node, (ast.Try, ast.If, ast.IfExp)) or not isinstance(node.ctx, ast.Load)
    if name == "parameters" and not (guarded or model.problem or model.templates or key in model.config.parameters):
        yield model.in_code("parameter-missing", code, node.lineno, name=key)


def _attribute_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield attributes of `self` that the methods of the model read and nothing sets."""
    cls = code.model_class
    if cls is None or code.inherits or cls.keywords or cls.decorator_list or _DYNAMIC.search(code.text):
        return
    known = {getattr(n, "name", "") for n in cls.body} | {n.id for n in ast.walk(cls) if isinstance(n, ast.Name)}
    attributes = [n for n in ast.walk(code.tree) if isinstance(n, ast.Attribute)]
    known |= {n.attr for n in attributes if not isinstance(n.ctx, ast.Load)}
    own = [n for n in ast.walk(cls) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "self"]
    if any(isinstance(n, ast.ClassDef) for part in cls.body for n in ast.walk(part)) or code.siblings:
        return  # another class's `self`, or a module that sets attributes
    for node in own:
        if node.attr not in known and not node.attr.startswith("__"):
            known.add(node.attr)
            yield model.in_code("attribute-unset", code, node.lineno, name=node.attr)
