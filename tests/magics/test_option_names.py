"""One option has one name, one form and one value in all magics, verbs and commands."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator

from bls_notebook.capabilities import registry
from bls_notebook.magics.completion.magic_lines import magic_line, suggest


def parsers() -> Iterator[argparse.ArgumentParser]:
    for kind in ("magics", "verbs"):
        for key in registry().keys(kind):
            yield registry().load(kind, key).parser
    for name in registry().keys("commands"):
        parser = argparse.ArgumentParser(name)
        registry().load("commands", name).arguments(parser)
        yield parser


def test_an_option_takes_the_same_value_everywhere() -> None:
    forms: dict[str, set[object]] = defaultdict(set)
    for parser in parsers():
        for action in parser._actions:
            for option in action.option_strings:
                metavar = str(action.metavar).removesuffix(",...")  # a list where several can be given
                forms[option].add((metavar, action.nargs == 0))
    assert {option: found for option, found in forms.items() if len(found) > 1} == {}


def test_a_name_that_stands_alone_is_of_a_variable_and_a_model_is_called_model() -> None:
    for parser in parsers():
        for action in parser._actions:
            words = "variable" in str(action.help)
            assert (action.metavar == "NAME") <= words, (parser.prog, action.option_strings, action.help)
            if action.dest in ("model", "models"):
                assert action.metavar in (None, "MODEL"), parser.prog


def test_options_in_completions_are_those_of_the_parsers() -> None:
    for name in registry().keys("verbs"):
        line = magic_line(f"%tritonrepo {name} --", first_line=True)
        assert line is not None
        found = suggest(line, [], {})
        assert found is not None
        options = registry().load("verbs", name).parser.options
        assert set(found[1]) == {option for option in options if option.startswith("--")}
