"""Exercises of notebook 13."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from tests.course.exercises.exercise import Changes, Exercise, ch, source

PATH = "$$TRITON_MODEL_DIRECTORY/python3.12.tar.gz"
STUB = '(folder / "triton_python_backend_stub").touch()\ntry:\n    found = check_export("$$TRITON_MODEL_DIRECTORY/python3.11.tar.gz")\nfinally:\n    (folder / "triton_python_backend_stub").unlink()\nfound'
CHANGE = source("13_server_environments", "server-28").partition("\n")[2]
TEXTS = {
    name: source("13_server_environments", cell).partition("\n")[2]
    for name, cell in (("enlarge", "server-18"), ("poster", "server-19"))
}
PLAIN = f"+plain = {{name: (text, repo.config(name)) for name, text in {TEXTS!r}.items()}}"
FRESH = "for name, (text, settings) in plain.items():\n    repo.define(name, text, settings)\n"


def models(code: str, *more: str) -> Changes:
    """Return other code for the cell of the solution, which changes the models of the notebook."""
    return ch(CHANGE, FRESH + code, *more)


def bytes_in(*names: str) -> str:
    """Return code that makes the pictures of these models UINT8."""
    return f"""for name in {names}:
    config = repo.config(name)
    for tensor in [*config.input, *config.output]:
        tensor.data_type = 11 if tensor.name == "MEAN" else 2
    repo.load(name, config=config)"""


def edit(name: str, code: str) -> str:
    return f'config = repo.config("{name}")\n{code}\nrepo.load("{name}", config=config)'


UNKNOWN = """for name in ("enlarge", "poster"):
    config = repo.config(name)
    for tensor in [*config.input, *config.output]:
        tensor.dims[1:] = [-1] * len(tensor.dims[1:])
    repo.load(name, config=config)"""

EXERCISES = {
    "an environment": Exercise(
        "13_server_environments", ("server-01", "server-03", "server-05", "server-11"), "server-15", "",
        ch(f'check_export("{PATH}")', STUB),
        (
            (ch(PATH, ""), "config.pbtxt names no environment"),
            (ch(PATH, "python3.11.tar.gz"), "is not below the model's folder"),
            (ch(PATH, "python3.12.tar.gz"), "`$$TRITON_MODEL_DIRECTORY/FILE`"),
            (ch(PATH, "$$TRITON_MODEL_DIRECTORY/python3.11.tar.gz"), "is for Python 3.11"),
            (ch(PATH, "$TRITON_MODEL_DIRECTORY/python3.12.tar.gz"), "`$$TRITON_MODEL_DIRECTORY/FILE`"),
            (ch(PATH, "$$TRITON_MODEL_DIRECTORY/rater/python3.12.tar.gz"), "environment rater/python3.12.tar.gz is not in the model's folder"),
            (ch(PATH, "$$TRITON_MODEL_DIRECTORY/../rater/python3.12.tar.gz"), "is not below the model's folder"),
            (ch(PATH, "exported_check/rater/python3.12.tar.gz"), "is not below the model's folder"),
            (ch(PATH, "$$TRITON_MODEL_DIRECTORY/python3.12.tar"), "is not in the model's folder"),
            (ch(f'check_export("{PATH}")', "bls.check()"), "problems is ["),
            (ch(f'check_export("{PATH}")', "with bls.ModelRepository() as empty:\n    found = bls.check(repo=empty)\nfound"),
             "no model was checked"),
        ),
    ),
    "64 MiB": Exercise(
        "13_server_environments",
        ("server-01", "server-18", "server-19", PLAIN), "server-28", "server-26",
        models(bytes_in("enlarge", "poster"), "CHECK:np.float32", "np.uint8"),
        (
            (models("pass"), "Largest first: enlarge 3 x 18 MiB"),
            (models(edit("enlarge", "config.instance_group[0].count = 4")), "enlarge 4 x 18 MiB"),
            (models(edit("enlarge", "config.max_batch_size = 2; config.dynamic_batching.preferred_batch_size[:] = [2]")), "1 request failed"),
            (models(bytes_in("enlarge")), "1 request failed"),
            (models(UNKNOWN), "tensors of enlarge and poster whose size is unknown"),
            (models(bytes_in("enlarge", "poster")), "1 request failed"),
            (models('repo.define("poster", plain["poster"][0].replace("large.mean(", "large[:, :, ::512].mean("), plain["poster"][1])\n' + edit("enlarge", "config.instance_group[0].count = 2")),
             "for other inputs, MEAN"),
            (models('repo.define("poster", plain["poster"][0].replace("large.mean(", "request.inputs()[0].as_numpy().mean("), plain["poster"][1])\n' + edit("enlarge", "config.instance_group[0].count = 2")),
             "must not do the work of a callee itself"),
            (models(edit("enlarge", "config.output[0].dims[:] = [3, 256, 256]")), "outputs as configured"),
            (models('repo.define("poster", plain["poster"][0].replace("enlarge", "rater"), plain["poster"][1])'), "No request to enlarge"),
            (models('repo.define("poster", plain["poster"][0].replace("(1, 2, 3)", "(1, 2)").replace("(-1, 1)", "(-1, 1)[:4]"), plain["poster"][1])'), "expected"),
        ),
    ),
}  # fmt: skip
