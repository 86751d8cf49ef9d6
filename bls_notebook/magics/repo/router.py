"""Finds the verb of a ``%tritonrepo`` line and runs it."""

from __future__ import annotations

import difflib

from IPython.core.error import UsageError

from bls_notebook.capabilities import registry
from bls_notebook.magics.magic import Magic, Verb, verb_named
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import HelpWanted, Parser
from bls_notebook.magics.parsing.request_line import read_line
from bls_notebook.magics.parsing.words import Variables, expanded


class _Repository(Parser):
    def format_help(self) -> str:
        """Return the verbs, then each verb's own help."""
        verbs: list[Verb] = [registry().load("verbs", name) for name in registry().keys("verbs")]
        lines = ["usage: %tritonrepo [VERB] [arguments]", ""]
        lines += ["Looks after the current model repository. Without a verb: list.", "", "verbs:"]
        lines += [f"  {verb.name:8} {verb.summary}" for verb in verbs]
        return "\n".join(lines) + "\n\n" + "\n".join(verb.parser.format_help() for verb in verbs)


PARSER = _Repository("%tritonrepo", "")


def tritonrepo(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Look after the current repository."""
    named = verb_named(next(iter(line.split()), "list"))  # whose line it is, also where it has no words
    read = (PARSER if named is None else named.parser).words_of(line)
    words = [expanded(word.plain, variables) for word in read] or ["list"]
    if words[0] in ("-h", "--help"):
        raise HelpWanted(PARSER.format_help())
    verb = verb_named(words[0])
    if verb is None:
        raise UsageError(_unknown(words[0]))
    if not verb.takes_inputs:
        return verb.run(notebook, verb.parser.parse(words[1:]))
    request = read_line(verb.parser, line[read[0].end :], variables)
    arguments = verb.parser.parse(request.words)
    arguments.inputs = request.values(variables, verb.parser.prog)
    return verb.run(notebook, arguments)


def _unknown(word: str) -> str:
    missing, verbs = registry().missing("verbs", word), registry().keys("verbs")
    if missing:
        return missing
    close = difflib.get_close_matches(word, verbs, 1)
    guess = f" (did you mean {close[0]}?)" if close else ""
    return f"%tritonrepo: unknown verb {word!r}{guess}; the verbs are {', '.join(verbs)}."


MAGIC = Magic(PARSER, tritonrepo)
