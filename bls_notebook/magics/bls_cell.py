"""``%%bls``: run a cell as the body of an `execute`; file name and line numbers of a cell for debuggers.

A frontend derives the file name of a breakpoint from the whole text of the cell, including the magic's line, and the
shell compiles the cell under that name. So a breakpoint works only if the code below the magic is compiled under the
same file name with the same line numbers.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.engine.exception_text import labels
from bls_notebook.operations import OperationSpec, identifier, option
from bls_notebook.records.visible_text import first_line, spoken, without_traceback
from bls_notebook.repository.modules.module_home import SourcePlace
from bls_notebook.repository.source.code_analysis import called_models

from .cell_errors import display_of, fail_on
from .magic import MagicCall
from .notebook import Notebook

if TYPE_CHECKING:
    from bls_notebook.records.errors import ErrorRecord


def place_of(notebook: Notebook, body: str) -> SourcePlace | None:
    """Return the file and first line of `body` in the running cell; None if no cell ends with it."""
    shell: Any = notebook.shell
    place = None
    file = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # a cell may run another cell: the outermost one is visible
        if frame.f_globals is shell.user_global_ns:
            file = frame.f_code.co_filename
        elif frame.f_code.co_name == "run_cell_async":
            above = _lines_above(frame.f_locals.get("raw_cell"), body)
            if above and file:
                place = SourcePlace(file, f"Cell In[{notebook.cell_number}]", above + 1)
            file = ""
        frame = frame.f_back
    if place is not None:
        labels[place.file] = place.label
    return place


def _lines_above(cell: object, body: str) -> int:
    """Return how many lines a cell has above `body`; 0 if the cell is no cell magic that ends with it."""
    if not isinstance(cell, str):
        return 0
    whole, last = _lines(cell), _lines(body)
    above = len(whole) - len(last)
    magic = next(filter(None, whole), "")
    return above if above > 0 and magic.startswith("%%") and whole[above:] == last else 0


def _lines(text: str) -> list[str]:
    """Return the lines without indentation, because the shell removes a common indentation."""
    return [line.strip() for line in text.rstrip("\n").split("\n")]


def _bls(call: MagicCall, into: str = "") -> object:
    """Run a cell as the body of an `execute`."""
    __tracebackhide__ = True
    notebook = call.notebook
    notebook.stale.ask(called_models(call.cell), notebook.cell_number)
    variables = notebook.shell.user_ns
    variables.pop(into, None)  # a failed cell leaves no earlier value under this name
    given: dict[str, object] = {
        name: value for name, value in (("pb_utils", bls.pb_utils), ("requests", [])) if name not in variables
    }
    variables |= given
    try:
        value = cell_body(notebook, call.name, call.cell)()
    finally:
        for name in given:
            if variables.get(name) is given[name]:
                del variables[name]
    notebook.assign(into, value)
    return value


BLS_CELL = OperationSpec(
    """Run the cell as the body of a model's execute. The cell can send BLS requests with exec or, using top-level
    await, with async_exec. pb_utils is imported, and requests is an empty list. It reads and assigns the notebook's
    variables. A cell with await runs in its own event loop, like a model's async execute. Ctrl-C stops the cell and
    cancels its requests. Use %bls to send a single request. Guide: docs/guides/async_and_decoupled.md.""",
    options=(option("--into", "NAME", "assign the cell's last value to this variable", identifier),),
    examples="""
    %%bls
    import triton_python_backend_utils as pb_utils
    request = pb_utils.InferenceRequest(
        model_name="add_sub", requested_output_names=["OUTPUT0"],
        inputs=[pb_utils.Tensor("INPUT0", a), pb_utils.Tensor("INPUT1", b)])
    response = await request.async_exec()
    pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()
    """,
    notebook=_bls,
)


class CellSyntaxError(Exception):
    """A cell with a syntax error, displayed as IPython displays it: without frames of this package."""

    def __init__(self, error: SyntaxError, shown: list[str]) -> None:
        super().__init__(str(error))
        self._shown = shown

    def _render_traceback_(self) -> list[str]:
        return self._shown


def cell_body(notebook: Notebook, magic: str, cell: str) -> Callable[[], Any]:
    """Compile the text below a cell magic; return a function that runs it as the body of an `execute`.

    The cell may send requests and await them. The function returns the value of the last line if that line is an
    expression, as any cell does. Tracebacks begin at the cell, and line 1 is the magic. Raises CellSyntaxError.
    """
    function, file = _function(notebook, magic, cell)

    def body() -> Any:
        __tracebackhide__ = True
        errors: list[ErrorRecord] = []
        try:
            value = bls.current_repository().run(function, errors)
        except BaseException as error:
            _show_remedies(notebook, errors)
            _show_from_the_cell_on(notebook, error, file)
            _show_help(notebook, error)
            raise
        if errors:
            fail_on(notebook, [error.message for error in errors], errors[0])
            _show_remedies(notebook, errors)
        return value

    return body


def _show_remedies(notebook: Notebook, errors: list[ErrorRecord]) -> None:
    """Show how to fix the errors that the cell's requests got, each once, if that is known."""
    from bls_notebook.records.advice import advised  # first needed here
    from bls_notebook.repository.host import Host

    known = Host(bls.current_repository()).known
    for error in {error.message: error for error in errors}.values():
        if hint := advised(error, known).hint:
            words = first_line(without_traceback(spoken(error.message)))
            notebook.say(f"a request to {error.chain[0]!r} failed: {words}", "warning", f"how to fix: {hint}")


def _show_help(notebook: Notebook, error: BaseException) -> None:
    """Show how to fix an exception of the cell's own code, as for a model, if that is known."""
    from bls_notebook.engine.exception_text import describe
    from bls_notebook.records.advice import advised
    from bls_notebook.records.errors import ErrorRecord
    from bls_notebook.repository.host import Host

    if isinstance(error, Exception) and display_of(error) is None:
        found = describe(error)
        record = ErrorRecord(found.message, "", (), found.kind, found.frames)
        if hint := advised(record, Host(bls.current_repository()).known).hint:
            notebook.say(f"{found.kind}: {first_line(str(error))}", "warning", f"how to fix: {hint}")


def _function(notebook: Notebook, magic: str, cell: str) -> tuple[Callable[[], Any], str]:
    """Return a function that runs the cell, and the cell's file name."""
    shell: Any = notebook.shell
    place = place_of(notebook, cell)
    body = cell.lstrip("\n")
    # Line numbers include the lines of the magic above.
    above = (1 if place is None else place.line - 1) + len(cell) - len(body)
    source = f"# {magic}" + "\n" * above + shell.transform_cell(body)
    if place is None:
        file = str(shell.compile.cache(source, notebook.cell_number, raw_code=f"{magic}\n" + cell))
    else:
        file = place.file
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    try:
        codes = _compile(notebook, source, file)
    except SyntaxError as error:
        raise CellSyntaxError(error, shell.SyntaxTB.structured_traceback(SyntaxError, error, [])) from None
    namespace = shell.user_ns

    def run() -> Any:
        value = None
        for code in codes:
            value = eval(code, namespace)
        return value

    async def run_async() -> Any:
        value = None
        for code in codes:
            value = eval(code, namespace)
            if _awaits(code):
                value = await value
        return value

    return (run_async if any(map(_awaits, codes)) else run), file


def _compile(notebook: Notebook, source: str, file: str) -> list[CodeType]:
    """Compile the cell; a last line that is an expression is separate code, because its value is returned."""
    shell: Any = notebook.shell
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=file))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    flags = shell.compile.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    codes = [compile(tree, file, "exec", flags, dont_inherit=True)]
    if isinstance(last, ast.Expr):
        codes.append(compile(ast.Expression(last.value), file, "eval", flags, dont_inherit=True))
    return codes


def _awaits(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _show_from_the_cell_on(notebook: Notebook, error: Any, file: str) -> None:
    """Cut the displayed traceback so that it begins at the cell, as if the cell had no magic."""
    first: TracebackType | None = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename != file:
        first = first.tb_next
    if first is None or display_of(error) is not None:
        return
    traceback = first

    def render() -> list[str]:
        shown: list[str] = notebook.shell.InteractiveTB.structured_traceback(type(error), error, traceback, tb_offset=0)
        return shown

    error._render_traceback_ = render
