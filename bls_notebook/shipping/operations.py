"""The verbs ``export``, ``serve`` and ``prove`` of ``%tritonrepo``, and the commands of the same names."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.operations import (
    MODEL,
    MODELS,
    REPOSITORY,
    TOLERANCE,
    ULPS,
    OperationSpec,
    UsageProblem,
    counts,
    flag,
    opened,
    option,
    serve_until_interrupt,
    timeout,
    whole_number,
)
from bls_notebook.repository import load_with_callees

from .changed_models import export_changes
from .exports.deployment import TARGETS
from .records import Certificate, Changes, Exported

if TYPE_CHECKING:
    from bls_notebook.magics import MagicCall

_REQUESTS = option("--requests", "FILE", "a recording (bls.record) with the requests", surface="notebook")


def _export(
    place: str, inputs: Mapping[str, Any], names: Sequence[str] = (), requests: str = "", changed: bool = False,
    write: bool = False, **options: Any,
) -> Exported | Changes:  # fmt: skip
    if write and not changed:
        raise UsageProblem("--write belongs to --changed; without --changed, FOLDER is written at once")
    if changed:
        if inputs or requests or options:
            raise UsageProblem("--changed takes FOLDER, models and --write alone")
        return export_changes(*names, place=place, write=write)
    if inputs and len(names) != 1:
        raise UsageProblem("inputs need exactly one model; name it before them")
    if inputs and requests:
        raise UsageProblem("give either inputs or --requests, not both")
    given: Any = {names[0]: [inputs]} if inputs else bls.open_file(requests) if requests else None
    return bls.export(place, *names, requests=given, **options)


def _export_repository(
    repository: str, place: str, names: Sequence[str] = (), keep_going: bool = False, **options: Any
) -> Generator[Exported, None, None]:
    with opened(repository) as repo:
        every = names or [record.name for record in repo.index()]
        for group in [[name] for name in every] if keep_going else [names]:
            with suppress(*([bls.BLSError] if keep_going else [])):
                load_with_callees(repo, group)
        yield bls.export(place, *names, repo=repo, keep_going=keep_going, **options)


EXPORT = OperationSpec(
    """Write models and their callees as a model repository for a server. Writes each model with its files, its
    config.pbtxt and the models that it calls, and adds requirements.txt and a README.md with the commands to serve,
    test and measure them. If a model cannot run on a server, for example because it reads a notebook variable, export
    reports why and writes nothing, or with --keep-going leaves that model out. It copies modules of yours that a
    model imports from other folders, leaves out .env, private keys and .git unless --secrets is given, and names what
    else a server needs: files elsewhere, environment variables, computed names of callees, state of this kernel, and
    the explicit model control mode for pb_utils.load_model. It replaces a folder only if an export wrote all files in
    it. Given requests (INPUT=EXPRESSION, as in %bls, or --requests), it also writes their answers: prove.py compares
    them with a server's on another machine, and perf_analyzer gets input data. --changed is for the folder that the
    models come from: it shows the differences of the models that cells changed, and with --write it writes only their
    changed files. In scripts: bls.export(); in a shell: python -m bls_notebook export REPOSITORY FOLDER. Guide:
    docs/guides/package_environments.md.""",
    _export,
    (
        REPOSITORY,
        option("place", "FOLDER", "folder or .zip file to write"),
        MODELS,
        option("--replicas", "N", "for compose: N servers behind HAProxy", int),
        flag("--changed", "show how the models that cells changed differ from FOLDER, and write nothing", "notebook"),
        flag("--write", "with --changed: write the changed files into FOLDER", "notebook"),
        flag("--completed", "write completed configurations (default: as written)"),
        flag("--secrets", "include .env, private keys, .git and the like"),
        flag("--keep-going", "leave out and name models that do not load or cannot run on a server"),
        _REQUESTS,
        option("--for", "PLACE", f"also write files to deploy: {', '.join(TARGETS)}", dest="target", choices=TARGETS),
    ),
    """
    %tritonrepo export ../ship
    %tritonrepo export ship.zip digit_reader
    %tritonrepo export model_repository --changed
    %tritonrepo export model_repository --changed --write
    %tritonrepo export ../ship --for kubernetes
    %tritonrepo export ../ship --for compose --replicas 3
    %tritonrepo export ../ship digit_reader IMAGE=image
    %tritonrepo export ../ship digit_reader --requests run.blsrec
    """,
    form="inputs",
    shell=_export_repository,
)


def _serve(call: MagicCall, names: Sequence[str] = (), stop: bool = False, **options: Any) -> object:
    state = call.notebook.state
    previous: Any = state.get("shipping.server")
    if stop:
        if previous is None or names:
            problem = "takes no models" if names else "no server runs; start one with %tritonrepo serve"
            raise UsageProblem(f"--stop: {problem}")
        previous.stop()
        return state.pop("shipping.server")
    server = state["shipping.server"] = bls.serve(*names, **options)
    if previous is not None:
        previous.stop(graceful=False)
        call.notebook.say("the previous server was stopped", "info")
    return server


def _serve_repository(repository: str, names: Sequence[str] = (), **options: Any) -> Generator[Any, None, None]:
    with opened(repository, names) as repo:
        server = bls.serve(*names, repo=repo, **options)
    yield from serve_until_interrupt(server)


SERVE = OperationSpec(
    """Serve a copy of the models with the real tritonserver. Exports the models and their callees, starts a
    tritonserver on the copy and waits until it is ready. It uses the tritonserver on PATH, or else the one in the
    wheel nvidia-pytriton (Linux on x86-64), which it installs once into a separate environment with the packages that
    the models import; with --container, NVIDIA's image in docker. The server listens on 127.0.0.1 only and ends with
    the kernel. One server runs at a time: a new one replaces the previous one when it is ready. The value is the
    server: server.infer(...), server.log(), server.stop(). In scripts: bls.serve(); in a shell, until Ctrl-C: python
    -m bls_notebook serve REPOSITORY.""",
    options=(
        REPOSITORY,
        MODELS,
        flag("--stop", "stop the server that runs", "notebook"),
        timeout("timeout for loading all models (default: 120s)", "--start-timeout"),
        option("--container", "IMAGE", "serve in docker (default image: NVIDIA's)", nargs="?", const=True),
    ),
    examples="""
    %tritonrepo serve
    server = %tritonrepo serve digit_reader
    %tritonrepo serve --stop
    %tritonrepo serve --container --start-timeout 10m
    """,
    notebook=_serve,
    shell=_serve_repository,
)

_GENERATED = 100  # generated requests, if the user gives none, as the help says


def _prove(model: str, inputs: Mapping[str, Any], requests: str = "", **options: Any) -> Certificate:
    given: list[Any] = [inputs] if inputs else []
    if requests:
        given.append(bls.open_file(requests))
    return bls.prove(model, *given, **{"generate": 0 if given else _GENERATED, **options})


def _prove_repository(
    repository: str, names: Sequence[str] = (), server: str = "", generate: int = _GENERATED, **options: Any
) -> Generator[Certificate, None, None]:
    from .proof.prover import proving
    from .proof.requests import generator

    if generate:
        generator()
    with opened(repository) as repo, ExitStack() as stack:
        names = names or [record.name for record in repo.index()]
        load_with_callees(repo, names)
        prove: Callable[..., Certificate]
        if server:
            prove = partial(bls.prove, repo=repo, server=server)
        else:
            prove = stack.enter_context(proving(repo, names)).prove
        for name in names:
            yield prove(name, generate=generate, **options)


PROVE = OperationSpec(
    """Compare a model's answers with those of the real tritonserver. Sends the same requests to the model and to a
    tritonserver that runs an exported copy of it and of its callees. (The first time, it installs the server into a
    separate environment.) It compares outputs bit by bit, errors by text and code, and the whole stream of decoupled
    models; it sends the rows of batches again one by one; and it compares Triton's counts of requests and executions,
    those of callees included. Requests are given (INPUT=EXPRESSION, as in %bls), recorded (--requests), or generated
    from the model's config (100 by default if none are given); generated ones sometimes reuse given inputs, and vary
    the requested outputs, parameters, IDs and timeouts. The certificate lists what was never sent. A difference is
    shown with the smallest request that reproduces it; one of rounding alone (≈) with the tolerance that accepts it. A
    model whose answers vary cannot be compared (?). In scripts: bls.prove(); in a shell: python -m
    bls_notebook prove REPOSITORY. Evidence: docs/evidence/conformance.md.""",
    _prove,
    (
        REPOSITORY,
        replace(MODEL, surface="notebook"),
        replace(MODELS, surface="shell"),
        option("--generate", "N", "generate N requests (default: 100 if none are given)", whole_number(0)),
        option("--seed", "N", "equal seeds make equal requests with the same version of hypothesis", whole_number(0)),
        TOLERANCE,
        ULPS,
        option("--instances", "N,...", "send requests again, in parallel, with these instance counts", counts),
        timeout("timeout of a request (default: 30s)"),
        option("--server", "URL", "compare with a running server: grpc://host:port or http://host:port"),
        _REQUESTS,
    ),
    """
    %tritonrepo prove add_sub --generate 200
    %tritonrepo prove add_sub INPUT0=[1, 2] INPUT1=[3, 4]
    proof = %tritonrepo prove classify IMAGE=image --generate 50 --tolerance 1e-6
    %tritonrepo prove classify IMAGE=image --instances 1,4
    """,
    form="inputs",
    shell=_prove_repository,
    failed=lambda certificate: not certificate.equal,
)
