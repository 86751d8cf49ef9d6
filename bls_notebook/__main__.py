"""``python -m bls_notebook COMMAND``: the public calls for scripts and continuous integration, one a command.

A command exits with 0 where all is well, 1 where what it found is not, and 2 where it was misused.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import bls_notebook as bls

from .records.plain import Record
from .records.quantities import seconds_in
from .repository.call_order import load_with_callees
from .shipping.proof.certificate import Certificate

Run = Callable[[argparse.Namespace], int]


@dataclass(frozen=True)
class Command:
    """One command: its name, a line for the list, what adds its arguments, and what runs it."""

    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Run


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="a folder whose sub-folders are models, or the folder of one model")
    parser.add_argument(
        "models", nargs="*", default=[], metavar="MODEL", help="names of models (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def _check(arguments: argparse.Namespace) -> int:
    from .repository.source.layout import version_folders
    from .repository.source.repository_folders import is_repository, repositories_below, repository_folder

    folder, names = Path(arguments.folder), list(arguments.models)
    if (folder / "config.pbtxt").is_file() or (folder.is_dir() and version_folders(folder)):
        folder, names = folder.resolve().parent, [folder.resolve().name]  # the folder of one model
    elif folder.is_dir() and not is_repository(folder) and any(repositories_below(folder)):
        folder = repository_folder(folder, "python -m bls_notebook check")
    with bls.ModelRepository(folder) as repository:
        found = bls.check(*names, repo=repository)
    if not found.models:
        raise bls.BLSError(f"{arguments.folder}: no models there; give a folder whose sub-folders are models")
    _print(found, arguments.json)
    return int(found.bites)


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("place", help="a folder, or a file that ends with .zip, to write")
    parser.add_argument(
        "models", nargs="*", default=[], metavar="MODEL", help="names of models (default: all)"
    )
    parser.add_argument(
        "--for", dest="target", default="", metavar="PLACE",
        help="write what it takes to serve them there, too: docker, compose, kubernetes, kserve or dynamo",
    )  # fmt: skip
    parser.add_argument(
        "--replicas", type=int, default=1, metavar="N", help="for compose: N servers behind HAProxy"
    )
    parser.add_argument("--completed", action="store_true", help="write completed configurations")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def _export(arguments: argparse.Namespace) -> int:
    with bls.ModelRepository(arguments.repository) as repository:
        load_with_callees(repository, arguments.models)
        written = bls.export(
            arguments.place, *arguments.models,
            target=arguments.target, replicas=arguments.replicas, completed=arguments.completed,
            repo=repository,
        )  # fmt: skip
    _print(written, arguments.json)
    return 0


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of models (default: all)")
    parser.add_argument(
        "--container", nargs="?", const=True, default=False, metavar="IMAGE", help="in a container, by docker"
    )
    parser.add_argument("--json", action="store_true", help="print the addresses and models as JSON")


def _serve(arguments: argparse.Namespace) -> int:
    with redirect_stdout(sys.stderr), bls.ModelRepository(arguments.repository) as repository:
        load_with_callees(repository, arguments.models)
        server = bls.serve(*arguments.models, repo=repository, container=arguments.container)
    with server:
        _print(server.record, arguments.json)
        sys.stdout.flush()  # whoever waits for the addresses may read from a pipe
        print("Ctrl-C stops it.", file=sys.stderr)
        try:
            server.wait()
        except KeyboardInterrupt:
            return 0
        except bls.BLSError as error:
            print(error, file=sys.stderr)
    return 1


def _endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of models (default: all)")
    parser.add_argument("--http-port", type=int, default=0, metavar="N", help="default: a free one")
    parser.add_argument("--grpc-port", type=int, default=0, metavar="N", help="default: a free one")
    parser.add_argument("--token", metavar="TEXT", help="what clients send (default: made at random)")
    parser.add_argument("--no-token", action="store_true", help="take requests of any program here")
    parser.add_argument("--json", action="store_true", help="print the addresses and models as JSON")


def _endpoint(arguments: argparse.Namespace) -> int:
    with bls.ModelRepository(arguments.repository) as repository:
        with redirect_stdout(sys.stderr):
            load_with_callees(repository, arguments.models)
        made = bls.endpoint(
            repository, http_port=arguments.http_port, grpc_port=arguments.grpc_port,
            token="" if arguments.no_token else arguments.token,
        )  # fmt: skip
        try:
            with made:
                _print(made.record, arguments.json)
                sys.stdout.flush()  # whoever waits for the addresses may read from a pipe
                print("Ctrl-C stops it.", file=sys.stderr)
                made.wait()
        except KeyboardInterrupt:
            return 0
    return 1


def _print(record: Record, as_json: bool) -> None:
    if as_json:
        print(json.dumps(record.to_dict(), indent=2))
    else:
        from .display import render

        print(render(record, width=min(shutil.get_terminal_size().columns, 120)).text)


def _try_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="a model repository, or a folder that holds one")
    parser.add_argument("--real", metavar="A,B", help="run the code of these models alone; none for nobody's")
    parser.add_argument("--fill", action="append", default=[], metavar="KEY=VALUE", help="fill a template")
    parser.add_argument("--load-timeout", default="60s", metavar="TIME", help="of each model, such as 60s")
    parser.add_argument("--json", action="store_true", help="print what came of it as JSON")


def _try(arguments: argparse.Namespace) -> int:
    pairs = [pair.partition("=") for pair in arguments.fill]
    wrong = next((key for key, equals, _ in pairs if not key or not equals), None)
    if wrong is not None:
        raise bls.BLSError(f"--fill: got {wrong!r}, expected KEY=VALUE, such as max_batch_size=8")
    real = None if arguments.real is None else [name for name in arguments.real.split(",") if name != "none"]
    seconds = seconds_in(arguments.load_timeout)
    if seconds is None:
        raise bls.BLSError(f"--load-timeout: got {arguments.load_timeout!r}, expected a time such as 60s")
    with redirect_stdout(sys.stderr):  # what models print is no part of the report
        repository, report = bls.try_repository(
            arguments.folder, fill={key: value for key, _, value in pairs}, real=real,
            load_timeout=seconds, tell=print,
        )  # fmt: skip
        repository.close()
    _print(report, arguments.json)
    return int(any(model.kind == "absent" for model in report.models) or bool(report.left))


def _prove_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of models (default: all)")
    parser.add_argument("--generate", type=int, default=100, metavar="N", help="requests a model")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N",
        help="the same makes the same requests, by one version of hypothesis",
    )  # fmt: skip
    parser.add_argument("--tolerance", type=float, default=0.0, metavar="X", help="that floats may differ by")
    parser.add_argument("--ulps", type=int, default=0, metavar="N", help="floats between two that may differ")
    parser.add_argument(
        "--instances", type=int, nargs="+", default=(), metavar="N", help="instance counts to try as well"
    )
    parser.add_argument("--server", default="", metavar="URL", help="one that runs: grpc://host:port")
    parser.add_argument("--json", action="store_true", help="print the certificates as JSON, one a line")


def _prove(arguments: argparse.Namespace) -> int:
    from .shipping.proof.generating import generator
    from .shipping.proof.proving import proving

    if arguments.generate:
        generator()
    all_equal = True
    with bls.ModelRepository(arguments.repository) as repository, redirect_stdout(sys.stderr) as messages:
        names = arguments.models or [record.name for record in repository.index()]
        load_with_callees(repository, names)
        options = {
            "generate": arguments.generate, "seed": arguments.seed, "tolerance": arguments.tolerance,
            "ulps": arguments.ulps, "instances": arguments.instances,
        }  # fmt: skip
        with ExitStack() as stack:
            prove: Callable[..., Certificate]
            if arguments.server:
                prove = partial(bls.prove, repo=repository, server=arguments.server)
            else:
                prove = stack.enter_context(proving(repository, names)).prove
            for name in names:
                proven = prove(name, **options)
                all_equal = all_equal and proven.equal
                with redirect_stdout(sys.__stdout__ or messages):
                    print(json.dumps(proven.to_dict())) if arguments.json else _print(proven, False)
    return int(not all_equal)


def _drill_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("model", help="the model that is asked; what it calls misbehaves")
    parser.add_argument(
        "inputs", nargs="*", metavar="INPUT=VALUE", help="JSON, or @FILE.npy: of a request that is answered"
    )
    parser.add_argument("--faults", metavar="A,B", help="these faults alone, such as error,stall,nan")
    parser.add_argument(
        "--load", default="", metavar="A,B", help="models that it calls by names in its inputs"
    )
    parser.add_argument("--pairs", action="store_true", help="try two models at a time too")
    parser.add_argument("--timeout", default="1s", metavar="TIME", help="an answer may take more than usual")
    parser.add_argument(
        "--save", metavar="FILE", help="write tests for pytest, such as tests/test_drill_x.py"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def _drill(arguments: argparse.Namespace) -> int:
    seconds = seconds_in(arguments.timeout)
    if not seconds:
        raise bls.BLSError(f"--timeout: got {arguments.timeout!r}, expected a time such as 500ms or 2s")
    inputs = dict(_input(pair) for pair in arguments.inputs)
    faults = None if arguments.faults is None else [each.strip() for each in arguments.faults.split(",")]
    with redirect_stdout(sys.stderr), bls.ModelRepository(arguments.repository) as repository:
        load_with_callees(repository, filter(None, (arguments.model, *arguments.load.split(","))))
        found = bls.drill(
            arguments.model, inputs, faults=faults, pairs=arguments.pairs, timeout=seconds, repo=repository,
            save=arguments.save,
        )  # fmt: skip
    _print(found, arguments.json)
    return int(bool(found.of("bad")))


def _input(pair: str) -> tuple[str, object]:
    """An input of a command line."""
    import numpy as np  # first needed here

    name, equals, value = pair.partition("=")
    try:
        if not (name and equals):
            raise ValueError("it has no name")
        return name, np.load(value[1:], allow_pickle=False) if value[:1] == "@" else json.loads(value)
    except (ValueError, OSError) as error:
        raise bls.BLSError(
            f"got {pair!r}, expected INPUT=VALUE with JSON or @FILE.npy, such as IN=[1,2]: {error}"
        ) from error


def _replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="what bls.record wrote, or requests as JSON (with --model)")
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("--model", metavar="MODEL", help="send the requests to this model")
    parser.add_argument("--only", metavar="MODEL", help="run this one alone, answer for others as recorded")
    parser.add_argument("--server", action="store_true", help="send them to a real tritonserver")
    parser.add_argument("--tolerance", type=float, default=0.0, metavar="X", help="that floats may differ by")
    parser.add_argument("--ulps", type=int, default=0, metavar="N", help="floats between two that may differ")
    parser.add_argument("--json", action="store_true", help="print what came of it as JSON")


def _replay(arguments: argparse.Namespace) -> int:
    with bls.ModelRepository(arguments.repository) as repository, redirect_stdout(sys.stderr):
        bls.set_current_repository(repository)
        there = [record.name for record in repository.index()]
        for name in [arguments.model] if arguments.model in there else []:
            repository.load(name)
        recording = bls.load(arguments.file)
        for name in recording.models:
            if name in there and not repository.ready(name):
                repository.load(name)
        found = bls.replay(
            recording, arguments.model, only=arguments.only, repo=repository, server=arguments.server,
            tolerance=arguments.tolerance, ulps=arguments.ulps,
        )  # fmt: skip
    _print(found, arguments.json)
    return int(not found.equal)


COMMANDS = (
    Command("replay", "send recorded requests again, and compare the answers", _replay_arguments, _replay),
    Command("prove", "compare models with copies of them on a real tritonserver", _prove_arguments, _prove),
    Command("drill", "have what a model calls misbehave, and say what it does", _drill_arguments, _drill),
    Command("export", "write models as a model repository for a server", _export_arguments, _export),
    Command("serve", "serve models by the real tritonserver until Ctrl-C", _serve_arguments, _serve),
    Command(
        "endpoint",
        "answer clients with the models, in this process, until Ctrl-C",
        _endpoint_arguments,
        _endpoint,
    ),
    Command(
        "check", "say what will bite in a model repository; runs no model's code", _check_arguments, _check
    ),
    Command(
        "try", "load anybody's model repository, with stubs for what cannot be loaded", _try_arguments, _try
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    parser = argparse.ArgumentParser("python -m bls_notebook", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.arguments(
            commands.add_parser(command.name, help=command.summary, description=command.summary)
        )
    given = parser.parse_args(arguments)
    try:
        return next(command.run for command in COMMANDS if command.name == given.command)(given)
    except bls.BLSError as error:
        print(f"{parser.prog} {given.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    given, sys.argv = sys.argv[1:], [""]  # what a model finds there on a server: some parse it
    sys.exit(main(given))
