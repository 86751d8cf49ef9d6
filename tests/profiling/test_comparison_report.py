"""A comparison as text and HTML."""

from __future__ import annotations

import re
from dataclasses import replace

from bls_notebook.display import document_text, render
from bls_notebook.display.document import Document
from bls_notebook.profiling.analysis.verdict import verdict
from bls_notebook.profiling.analysis.verdict_evidence import comparison_evidence
from bls_notebook.profiling.dependences.records import CodeChange, Dependence, Overlap, SentCall
from bls_notebook.profiling.line_report import slowest_lines
from bls_notebook.profiling.records.comparison import Comparison, Measured, MeasuredSetting, Verification
from bls_notebook.profiling.records.line_times import LineTime, ModelLines
from bls_notebook.profiling.session import Session
from bls_notebook.records.measurements import quartiles
from tests.profiling.simulated import Model, session

MS = 1_000_000
HOSTILE = "<script>alert(1)</script>`&\u202e"


def setting(count: int, models: dict[str, Model], n: int = 4) -> MeasuredSetting:
    one, all_ = session(models, *("a",) * n), session(models, ("a",) * n)
    return MeasuredSetting(
        count, replace(one, name="exec"), replace(all_, name="async_exec"), Measured(n, one.wall, all_.wall),
        quartiles([one.wall]), quartiles([all_.wall]),
    )  # fmt: skip


def comparison(verification: Verification | None = None) -> Comparison:
    now = setting(0, {"a": Model([10 * MS])})
    two = setting(2, {"a": Model([10 * MS], instances=2)})
    found = verdict(comparison_evidence(now.sequential, now.gathered, now.measured))
    return Comparison("a", 4, 1, (now, two), found, verification)


def overlap() -> Overlap:
    """Two calls of `a`, which could have been sent together."""
    now = setting(0, {"a": Model([10 * MS])})
    calls = (SentCall("b"), SentCall("b"), SentCall("c"))
    return Overlap(
        "a", 1, "independent", "`a` waits.", "", calls, (Dependence(0, 2, "dependent", "scaled", ("IN",)),),
        ((0, 1), (2,)), ((0, 1),), 7, 20, 12, 1.0, 2.0, now.sequential, now.gathered, 1.9, notes=("a guard",),
        code=CodeChange(proof="Proven.", proven=True),
    )  # fmt: skip


def test_an_overlap_says_what_could_be_done_its_proof_and_what_each_call_needs() -> None:
    text = render(overlap()).text
    said = ("20 runs of the model", "`a` waits.", "2 calls of `b` together, then `c`",
            "Proven.", "note: a guard", "what each of the 3 calls needs", "speed-up")  # fmt: skip
    places = [text.index(words) for words in said]
    assert places == sorted(places)


def test_the_sentence_comes_first_then_figures_timelines_and_what_if() -> None:
    text = render(comparison(Verification(("a",), 4, 4.0, 3.5))).text
    places = [
        text.index(words)
        for words in ("3 requests queued on the one", "sequential exec 40.0 ms", "async_exec  40.0 ms",
                      "instances of a  predicted", "verified: with 4 instances of `a`")
    ]  # fmt: skip
    assert places == sorted(places)
    rows = [line.split() for line in text.splitlines() if re.match(r" +[124]  +\d", line)]
    assert [row[0] for row in rows] == ["1", "2", "4"]
    assert "2.0×" in rows[1][-1]  # measured with two
    assert len(rows[2]) < len(rows[1])  # with four nothing was run
    assert "14% off" in text
    html = render(comparison()).html
    assert html.count('class="bls-session-verdict"') == 1
    assert html.count('class="bls-session-dot"> · <') == html.count('class="bls-session-tile"') - 1
    assert html.index('class="bls-session-verdict"') < html.index('class="bls-session-tiles"') < html.index("<img")
    assert ("<code>a</code>" in html, "verified" in html) == (True, False)


def test_the_time_of_a_line_is_of_the_run_that_is_shown() -> None:
    line = LineTime("model.py", 8, "execute", "time.sleep(0.01)", 1.0, 1.0, 0.0, 200 * MS, 90)
    found = comparison()
    now = replace(found.settings[0], lines=(ModelLines("a", 1, 20, 200 * MS, 90, 0.0, (line,)),))
    text = render(replace(found, settings=(now, *found.settings[1:]))).text
    assert re.search(r"100%  40\.0 ms  8 of execute", text), "four requests of 10 ms, not those of five runs"


def slow_lines(seconds: dict[str, int]) -> str:
    """Return the slow lines of models that take so many ms, each by its line 8, called by `front`."""
    models = {"front": Model([*seconds])} | {name: Model([ms * MS]) for name, ms in seconds.items()}
    line = LineTime("model.py", 8, "execute", "work()", 1.0, 1.0, 0.0, 0, 90)
    lines = [ModelLines(name, 1, 1, 9 * MS, 90, 0.0, (line,)) for name in models]
    blocks = slowest_lines(session(models, "front").statistics(), lines)
    return re.sub(" +", " ", document_text(Document(blocks), 100))


def test_slow_lines_of_several_models_are_shown() -> None:
    shown = slow_lines({"a": 60, "b": 30, "c": 10})
    assert shown.count("work()") == 2, "10% are little, and `front` waits for the others"
    assert "60% of the time from start to end goes to `a` itself" in shown
    assert "Slow lines of other models, by their share of all models' work:" in shown
    assert "30% 30.0 ms b 8 of execute work()" in shown
    shown = slow_lines({"a": 45, "b": 45, "c": 10})
    assert "The slowest lines, by their share of all models' work:" in shown
    assert "45% 45.0 ms a 8 of execute work()" in shown
    assert "45% 45.0 ms b 8 of execute work()" in shown
    assert not slow_lines(dict.fromkeys("abcdefgh", 10))


def test_on_a_server_is_measured_if_the_instances_are_processes() -> None:
    kernel = comparison()
    settings = [setting(0, {"a": Model([10 * MS], instances=2)}), setting(4, {"a": Model([10 * MS], instances=4)})]
    apart = [
        replace(each, gathered=replace(each.gathered, models=(replace(each.gathered.models[0], processes=True),)))
        for each in settings
    ]
    text = render(replace(kernel, settings=tuple(apart))).text
    table = next(line for line in text.splitlines() if "instances of a" in line)
    assert table.split()[-5:] == ["speed-up", "measured", "on", "a", "server"]
    rows = {line.split()[0]: line.split()[-1] for line in text.splitlines() if re.match(r" +[124]  +\d", line)}
    assert rows["2"] == "2.0×"  # today's
    assert rows["4"] == "4.0×"
    assert "`a`: each instance is a process here, as on a server" in text
    assert "each instance is a process here" not in render(kernel).text


def test_unproven_changes_are_not_shown_as_advice() -> None:
    code = CodeChange(proof="Not proven: no gain", reason="a loop", template="await")
    for proven in (False, True):
        html = render(replace(overlap(), stages=(), code=replace(code, proven=proven))).html
        assert ('class="bls-session-doubt">Not proven' in html) is not proven
        assert 'class="bls-session-doubt">Not changed for you' in html
        assert 'class="bls-session-advice"' not in html


def test_the_error_of_an_unsure_verification_is_told() -> None:
    sure, unsure = (render(comparison(Verification(("a",), 4, 4.0, 3.5, relative_error=d))).text for d in (0.04, 0.1))
    assert "give or take" not in sure
    assert "measured 3.5×, give or take 20%" in unsure


def test_nothing_of_a_model_reaches_html_unescaped() -> None:
    found = comparison()
    judged = replace(found.verdict, sentence=f"`{HOSTILE}`", advice=HOSTILE, models=(HOSTILE,))
    shown = render(replace(found, model=HOSTILE, verdict=judged))
    assert "<script" not in shown.html
    assert "\u202e" not in shown.html + shown.text


def test_no_predictions_for_instances_that_are_not_the_matter() -> None:
    found = replace(comparison(), settings=comparison().settings[:1])
    assert "predicted" in render(found).text
    little = replace(found, verdict=replace(found.verdict, cause="little", advice=""))
    assert "predicted" not in render(little).text
    assert "What other instance counts bring" not in render(little).html
    empty = MeasuredSetting(0, Session(), Session(), Measured(0, 0, 0))
    evidence = comparison_evidence(Session(), Session(), Measured(0, 0, 0))
    shown = render(Comparison("a", 0, 1, (empty,), verdict(evidence)))
    assert all("nothing to overlap" in form for form in (shown.text, shown.html))
