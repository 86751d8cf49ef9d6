from __future__ import annotations

import subprocess
import sys

import pytest
from IPython.core.error import UsageError

import bls_notebook as bls

CELL, LINE = "cell", "line"
MAGICS = [(CELL, "tritonmodel"), (CELL, "tritonconfig"), (CELL, "bls"), (LINE, "bls"), (LINE, "tritonrepo")]


def test_unload_takes_everything_away_and_load_brings_it_back(cells) -> None:
    cells.model()
    shell = cells.shell
    for _ in range(2):
        cells("%unload_ext bls_notebook")
        for kind, name in MAGICS:
            assert name not in shell.magics_manager.magics[kind]
        assert "BLSNotebook" not in cells("%config").stdout
        plain = cells("import bls_notebook\nbls_notebook.current_repository().infer('times', {'IN': [1]})")
        assert plain.text.startswith("<Response of 'times'")
        assert shell.custom_exceptions == ()
        assert type(cells("%bls times IN=[1]").error) is UsageError
        cells("%load_ext bls_notebook")
        assert cells("%bls times IN=[1]").success
    cells("%reload_ext bls_notebook")
    assert cells("%bls times IN=[1]").success
    assert bls.current_repository().ready("times")


def test_somebody_elses_handler_of_exceptions_is_kept(shell, capsys: pytest.CaptureFixture[str]) -> None:
    caught: list[BaseException] = []
    shell.set_custom_exc((LookupError,), lambda shell, kind, value, tb, tb_offset=None: caught.append(value))
    shell.extension_manager.load_extension("bls_notebook")
    shell.run_cell("{}['x']")
    assert [type(error) for error in caught] == [KeyError]
    shell.run_cell("%tritonrepo load nope")
    assert len(caught) == 1
    shell.extension_manager.unload_extension("bls_notebook")
    shell.run_cell("{}['y']")
    assert len(caught) == 2


def test_without_the_place_for_a_handler_the_text_is_shown(cells) -> None:
    cells.shell.set_custom_exc((LookupError,), None)
    failed = cells("%tritonrepo load nope")
    assert "✗ model 'nope'" in failed.stdout
    assert "Traceback" not in failed.stdout


HELP = [
    ("%bls?", ["INPUT=EXPRESSION", "--stream", "--into NAME", "examples:", "%bls add_sub INPUT0=[1, 2, 3]"]),
    ("%%bls?", ["body of a model's execute", "--into NAME", "await request.async_exec()"]),
    ("%%tritonmodel?", ["--config WHAT", "--instances N", "auto_complete_config", "%%tritonmodel add_sub"]),
    ("%%tritonconfig?", ["config.pbtxt", "%%tritonconfig add_sub"]),
    ("%tritonrepo?", ["verbs:", "list", "load", "unload", "reload", "config", "use", "clear", "--all"]),
]


@pytest.mark.parametrize(("question", "words"), HELP, ids=[h[0] for h in HELP])
def test_a_question_mark_shows_the_whole_help(cells, question: str, words: list[str]) -> None:
    shown = cells(question).stdout
    for word in words:
        assert word in shown
    assert "\x1b[" not in shown.replace("\x1b[31m", "").replace("\x1b[39m", "")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%bls -h", "usage: %bls MODEL"),
        ("%bls m IN=1 --help", "usage: %bls MODEL"),
        ("%tritonrepo load --help", "usage: %tritonrepo load"),
        ("%tritonrepo --help", "verbs:"),
        ("%%tritonmodel -h\nx", "usage: %%tritonmodel"),
        ("%%bls --help\nx", "usage: %%bls"),
    ],
)
def test_help_as_an_option(cells, cell: str, words: str) -> None:
    shown = cells(cell)
    assert shown.success
    assert words in shown.stdout


def test_loading_imports_nothing_heavy() -> None:
    heavy = ("matplotlib", "ipywidgets", "anywidget", "cupy", "sklearn", "grpc", "google.protobuf", "jedi")
    code = (
        "import sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "before = set(sys.modules)\n"
        "shell.run_line_magic('load_ext', 'bls_notebook')\n"
        f"print([m for m in {heavy!r} if m in sys.modules and m not in before])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_tables_are_one_line_inside_something_else(cells) -> None:
    cells.model()
    cells("models = %tritonrepo list\nstats = %tritonrepo stats\nmany = %bls times IN=[1] -n 50")
    inside = cells("models, [stats], {'many': many}")
    assert inside.text == "(<Records: 1>, [<Records: 1>], {'many': <Responses: 50>})"
    assert "50 requests" in cells("many").text
    assert len(cells("list(models), list(many)[:2], bls.current_repository().index()").text) < 1500
