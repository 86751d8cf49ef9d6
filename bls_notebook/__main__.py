"""``python -m bls_notebook COMMAND``: the public calls for scripts and continuous integration, one a command.

A command exits with 0 where all is well, 1 where what it found is not, and 2 where it was misused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .capabilities import registry
from .commands import Command
from .engine.errors import BLSError

_PROGRAM = "python -m bls_notebook"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    registry().scan()
    known = registry().keys("commands")
    missing = registry().missing("commands", words[0]) if words and words[0] not in known else ""
    if missing:
        print(missing, file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(_PROGRAM, description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named: dict[str, Command] = {}
    # Only the command that is run is imported; the list of all needs every one.
    for name in words[:1] if words and words[0] in known else known:
        command = named[name] = registry().load("commands", name)
        command.arguments(commands.add_parser(name, help=command.summary, description=command.summary))
    given = parser.parse_args(words)
    try:
        return named[given.command].run(given)
    except BLSError as error:
        print(f"{_PROGRAM} {given.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    given, sys.argv = sys.argv[1:], [""]  # what a model finds there on a server: some parse it
    sys.exit(main(given))
