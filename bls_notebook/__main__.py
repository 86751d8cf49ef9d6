"""``python -m bls_notebook COMMAND``: commands for scripts and continuous integration.

The exit status is 0 for success, 1 if the command found problems, and 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .capabilities import registry
from .commands import Command
from .engine.errors import BLSError
from .records.visible_text import visible

_PROGRAM = "python -m bls_notebook"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    registry().scan()
    known = registry().keys("commands")
    parser = argparse.ArgumentParser(_PROGRAM, description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named: dict[str, Command] = {}
    # Import only the command to run; the list of commands needs all of them.
    for name in words[:1] if words and words[0] in known else known:
        command = named[name] = registry().load("commands", name)
        command.arguments(commands.add_parser(name, help=command.summary, description=command.summary))
    options = parser.parse_args(words)
    try:
        status = named[options.command].run(options)
        sys.stdout.flush()
    except BLSError as error:
        message = str(error).removeprefix(f"{options.command}: ")
        print(visible(f"{_PROGRAM} {options.command}: {message}", lines=True), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    words, sys.argv = sys.argv[1:], [""]  # as in Triton's stub, because some models parse sys.argv
    sys.exit(main(words))
