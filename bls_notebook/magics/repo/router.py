"""Finds the verb of a ``%tritonrepo`` line and runs it."""

from __future__ import annotations

import difflib

from IPython.core.error import UsageError

from bls_notebook.checking.verbs import CHECK
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import HelpWanted, Parser
from bls_notebook.magics.parsing.expressions import Variables, expanded
from bls_notebook.magics.parsing.request_line import read_line
from bls_notebook.network.connection.verbs import CONNECT
from bls_notebook.network.gateway.verbs import ENDPOINT
from bls_notebook.shipping.exports.verbs import EXPORT
from bls_notebook.shipping.proof.verbs import COMPARE
from bls_notebook.shipping.servers.verbs import SERVE
from bls_notebook.trying.verbs import TRY

from .loading import CLEAR, LOAD, RELOAD, UNLOAD, USE
from .showing import CONFIG, DEVICES, LIST, METRICS, STATS, WATCH
from .verb import Verb

VERBS: dict[str, Verb] = {
    v.name: v
    for v in (
        *(LIST, TRY, LOAD, UNLOAD, RELOAD, CHECK, CONFIG, STATS, METRICS, DEVICES, WATCH, USE, CLEAR),
        *(EXPORT, SERVE, COMPARE, CONNECT, ENDPOINT),
    )
}


class _Repository(Parser):
    def format_help(self) -> str:
        """Return the verbs, then each verb's own help."""
        lines = ["usage: %tritonrepo [VERB] [arguments]", ""]
        lines += ["Looks after the current model repository. Without a verb: list.", "", "verbs:"]
        lines += [f"  {verb.name:8} {verb.summary}" for verb in VERBS.values()]
        return "\n".join(lines) + "\n\n" + "\n".join(verb.parser.format_help() for verb in VERBS.values())


PARSER = _Repository("%tritonrepo", "")


def tritonrepo(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Look after the current repository."""
    named = VERBS.get(next(iter(line.split()), "list"))  # whose line it is, also where it has no words
    read = (PARSER if named is None else named.parser).words_of(line)
    words = [expanded(word.plain, variables) for word in read] or ["list"]
    if words[0] in ("-h", "--help"):
        raise HelpWanted(PARSER.format_help())
    verb = VERBS.get(words[0])
    if verb is None:
        close = difflib.get_close_matches(words[0], VERBS, 1)
        guess = f" (did you mean {close[0]}?)" if close else ""
        raise UsageError(f"%tritonrepo: unknown verb {words[0]!r}{guess}; the verbs are {', '.join(VERBS)}.")
    if not verb.takes_inputs:
        return verb.run(notebook, verb.parser.parse(words[1:]))
    request = read_line(verb.parser, line[read[0].end :], variables)
    arguments = verb.parser.parse(request.words)
    arguments.inputs = request.values(variables, verb.parser.prog)
    return verb.run(notebook, arguments)
