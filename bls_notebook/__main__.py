"""``python -m bls_notebook COMMAND``: commands for scripts and continuous integration.

The exit status is 0 for success, 1 if the command found problems, and 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from .capabilities import registry
from .engine.errors import BLSError
from .operations import OperationSpec, UsageProblem
from .records.visible_text import visible

_PROGRAM = "python -m bls_notebook"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    registry().scan()
    known = registry().keys("commands")
    parser = argparse.ArgumentParser(_PROGRAM, description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Import only the command to run; the list of commands needs all of them.
    for name in words[:1] if words and words[0] in known else known:
        operation: OperationSpec = registry().load("commands", name)
        of_command = commands.add_parser(name, help=operation.summary, description=" ".join(operation.help.split()))
        operation.add_options(of_command, "shell")
        of_command.set_defaults(operation=operation)
    options = vars(parser.parse_args(words))
    name = options.pop("command")
    try:
        return _run(options.pop("operation"), options)
    except UsageProblem as problem:
        commands.choices[name].error(str(problem))
    except BLSError as error:
        message = str(error).removeprefix(f"{name}: ")
        print(visible(f"{_PROGRAM} {name}: {message}", lines=True), file=sys.stderr)
        return 2
    except SystemExit as end:  # an operation that ends without a result, such as a server that stopped
        return int(end.code or 0)
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(operation: OperationSpec, options: dict[str, Any]) -> int:
    """Print the records that the operation yields; return the exit status."""
    as_json, out, failed = options.pop("json", False), sys.stdout, False
    assert operation.shell is not None, operation
    with closing(operation.shell(**options)) as records:
        for record in records:
            if as_json:
                print(json.dumps(record.to_dict()), file=out)
            else:
                from .display import render

                print(render(record, width=min(shutil.get_terminal_size().columns, 120)).text, file=out)
            out.flush()  # a process that reads the addresses of a server from a pipe needs them now
            failed = failed or bool(operation.failed(record))
    out.flush()
    return int(failed)


if __name__ == "__main__":
    words, sys.argv = sys.argv[1:], [""]  # as in Triton's stub, because some models parse sys.argv
    sys.exit(main(words))
