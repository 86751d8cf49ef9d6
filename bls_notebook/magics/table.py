"""The magics: how each reads its line, and what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bls_notebook.course import check_magic as blscheck
from bls_notebook.course import guess_magic as blsguess
from bls_notebook.inspection import magic as blsinspect
from bls_notebook.lifetimes import magic as blsmemory
from bls_notebook.profiling import magic as blsprofile
from bls_notebook.testing.drills import magic as blsdrill
from bls_notebook.testing.recording import magic as blsreplay

from . import cell_body, request, tritonmodel
from .notebook import Notebook
from .parsing.arguments import Parser
from .parsing.expressions import Variables
from .repo import router


class Magic(NamedTuple):
    """A magic: its parser, which has its name and its help, and what it does."""

    parser: Parser
    run: Callable[[Notebook, str, str, Variables], object]

    @property
    def name(self) -> str:
        """Without its signs."""
        return self.parser.prog.lstrip("%")

    @property
    def kind(self) -> str:
        """Whether it is of a line or a cell."""
        return "cell" if self.parser.prog.startswith("%%") else "line"


MAGICS = (
    Magic(tritonmodel.PARSER, tritonmodel.tritonmodel),
    Magic(tritonmodel.CONFIG_PARSER, tritonmodel.tritonconfig),
    Magic(router.PARSER, router.tritonrepo),
    Magic(request.PARSER, request.bls_line),
    Magic(cell_body.PARSER, cell_body.bls_cell),
    Magic(blsprofile.PARSER, blsprofile.blsprofile_line),
    Magic(blsprofile.CELL_PARSER, blsprofile.blsprofile_cell),
    Magic(blsdrill.PARSER, blsdrill.blsdrill),
    Magic(blsmemory.PARSER, blsmemory.bls_memory),
    Magic(blscheck.PARSER, blscheck.bls_check_line),
    Magic(blscheck.CELL_PARSER, blscheck.bls_check_cell),
    Magic(blsguess.PARSER, blsguess.bls_guess),
    Magic(blsreplay.PARSER, blsreplay.blsreplay),
    Magic(blsinspect.PARSER, blsinspect.blsinspect),
)
