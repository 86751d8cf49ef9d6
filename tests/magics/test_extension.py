from __future__ import annotations

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


def test_the_exception_handler_of_others_is_kept(shell, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_if_another_handler_replaces_ours_the_text_is_shown(cells) -> None:
    cells.shell.set_custom_exc((LookupError,), None)
    failed = cells("%tritonrepo load nope")
    assert "✗ model 'nope'" in failed.stdout
    assert "Traceback" not in failed.stdout


HELP = [
    ("%bls?", ["INPUT=EXPRESSION", "--stream", "--trace", "examples:", "%bls add_sub INPUT0=[1, 2, 3]"]),
    ("%%bls?", ["body of a model's execute", "--into NAME", "await request.async_exec()"]),
    ("%%tritonmodel?", ["--config WHAT", "--instances N", "auto_complete_config", "%%tritonmodel add_sub"]),
    ("%%tritonconfig?", ["config.pbtxt", "%%tritonconfig add_sub"]),
    ("%tritonrepo?", ["verbs:", "list", "load", "unload", "reload", "config", "use", "clear", "--all"]),
]


OPTIONS = [
    ("%bls -h", "usage: %bls MODEL"), ("%bls m IN=1 --help", "usage: %bls MODEL"), ("%tritonrepo --help", "verbs:"),
    ("%tritonrepo load --help", "usage: %tritonrepo load"), ("%%bls --help\nx", "usage: %%bls"),
    ("%%tritonmodel -h\nx", "usage: %%tritonmodel"),
]  # fmt: skip


def test_a_question_mark_or_an_option_shows_the_help(cells) -> None:
    for question, words in HELP:
        shown = cells(question).stdout
        assert all(word in shown for word in words), question
        assert "\x1b[" not in shown.replace("\x1b[31m", "").replace("\x1b[39m", "")
    for cell, usage in OPTIONS:
        outcome = cells(cell)
        assert outcome.success
        assert usage in outcome.stdout, cell


def test_tables_are_one_line_inside_something_else(cells) -> None:
    cells.model()
    cells("models = %tritonrepo list\nstats = %tritonrepo stats\nmany = %bls times IN=[1] -n 50")
    inside = cells("models, [stats], {'many': many}")
    assert inside.text == "(<Records: 1>, [<Records: 1>], {'many': <Responses: 50>})"
    assert "50 requests" in cells("many").text
    assert len(cells("list(models), list(many)[:2], bls.current_repository().index()").text) < 1500
