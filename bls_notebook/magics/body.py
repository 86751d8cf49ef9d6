"""``%%bls``: run a cell as the body of an `execute`."""

from __future__ import annotations

from .cell_body import cell_body
from .notebook import Notebook
from .parsing.arguments import Parser, identifier
from .parsing.expressions import Variables

__all__ = ["PARSER", "bls_cell"]

PARSER = Parser(
    "%%bls",
    "Runs the cell as the body of a model's execute: it may send BLS requests, by exec and, with await "
    "at the top level, by async_exec. Its variables are the notebook's. A cell with await runs in "
    "an event loop of its own, as a model's async execute does. Ctrl-C stops it and what it started. "
    "For a single request see %bls.",
    """\
  %%bls
  import triton_python_backend_utils as pb_utils
  request = pb_utils.InferenceRequest(
      model_name="add_sub", requested_output_names=["OUTPUT0"],
      inputs=[pb_utils.Tensor("INPUT0", a), pb_utils.Tensor("INPUT1", b)])
  response = await request.async_exec()
  pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()
""",
)
PARSER.add_argument("--into", type=identifier, metavar="NAME", help="a variable for the cell's last value")


def bls_cell(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Run a cell as the body of an `execute`."""
    __tracebackhide__ = True
    arguments = PARSER.parse_line(line, variables)
    value = cell_body(notebook, "%%bls", cell)()
    notebook.assign(arguments.into, value)
    return value
