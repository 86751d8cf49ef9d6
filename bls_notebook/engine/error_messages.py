"""Triton's own words for what goes wrong with a request (core/src/infer_request.cc and others)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bls_notebook.records import quantities

# No inputs for a Python model that batches: it looks for the number of rows in the first.
NO_INPUTS = "out of bounds index 0: request has 0 inputs"
# A request waited longer in the dynamic batcher's queue than its policy allows.
TIMEOUT_EXPIRED = "Request timeout expired"
# A sequence waited longer for a slot than one of its requests allows.
SEQUENCE_TIMEOUT_EXPIRED = "timeout of the corresponding sequence has been expired"


def running(model: str, message: str) -> str:
    """An error of sending a BLS request, as the sender sees it."""
    return f"Model {model} - Error when running inference: {message}"


def without_running(message: str) -> str:
    """What `running` was given to make the message; the message itself where it is another's."""
    head, found, tail = message.partition(" - Error when running inference: ")
    return tail if found and head.startswith("Model ") and "\n" not in head else message


def in_ensemble(ensemble: str, message: str) -> str:
    """An error of a step of an ensemble."""
    return f"in ensemble '{ensemble}', {message}"


def not_ready(model: str) -> str:
    """No ready version of the model that was asked for."""
    model = model.partition("\0")[0]  # a name in C there
    return running(model, f"Failed for execute the inference request. Model '{model}' is not ready.")


def decoupled_called_as_plain(model: str) -> str:
    """A decoupled model was called without `decoupled=True`."""
    return running(
        model,
        f"Model {model} is using the decoupled. The current BLS request call doesn't support models using "
        "the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or "
        "'async_exec' calls for decoupled models.'",
    )


def execute_failed(instance: str, message: str) -> str:
    """`execute` raised, or returned what it must not."""
    return f"Failed to process the request(s) for model '{instance}', message: {message}"


def _of_request(model: str, request_id: str, message: str) -> str:
    return running(model, f"[request id: {request_id or '<id_unknown>'}] {message}")


def unexpected_input(model: str, name: str) -> str:
    """An input that the model does not have."""
    return running(model, f"unexpected inference input '{name}' for model '{model}'")


def unexpected_output(model: str, name: str) -> str:
    """A requested output that the model does not have."""
    return running(model, f"unexpected inference output '{name}' for model '{model}'")


def wrong_count(
    model: str, request_id: str, expected: tuple[int, int], got: Sequence[str], missing: Iterable[str]
) -> str:
    """Too few or too many inputs; `expected` is the least and the most."""
    least, most = expected
    wanted = f"{most} inputs" if least == most else f"number of inputs between {least} and {most}"
    listed = "[" + ",".join(f"'{n}'" for n in reversed(got)) + "]"
    absent = ",".join(f"'{n}'" for n in missing)
    absent = f"[{absent}]" if absent else "]"  # the real server's bracket goes missing like this
    problem = (
        f"expected {wanted} but got {len(got)} inputs for model '{model}'. Got input(s) {listed}, "
        f"but missing required input(s) {absent}. Please provide all required input(s)."
    )
    return _of_request(model, request_id, problem)


def duplicate_input(model: str, request_id: str, name: str) -> str:
    """The same input twice."""
    return _of_request(model, request_id, f"input '{name}' already exists in request")


def wrong_datatype(model: str, request_id: str, name: str, got: str, expected: str) -> str:
    """An input of another data type than the model's."""
    problem = f"inference input '{name}' data-type is '{got}', but model '{model}' expects '{expected}'"
    return _of_request(model, request_id, problem)


def wrong_shape(
    model: str, request_id: str, name: str, got: Sequence[int], expected: Sequence[int], batched: bool
) -> str:
    """An input of a shape that the model does not take."""
    note = (
        "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
        "prepended to each input shape. If you want to specify the full shape including the batch dim in "
        "your input dims config, try setting max_batch_size to zero. See the model configuration docs for "
        "more info on max_batch_size."
    )
    dims, shape = (",".join(map(str, s)) for s in (expected, got))
    problem = f"unexpected shape for input '{name}' for model '{model}'. Expected [{dims}], got [{shape}]. "
    return _of_request(model, request_id, problem + note * batched)


def no_batch_dimension(model: str, request_id: str, name: str) -> str:
    """An input without any dimension, where the model batches."""
    problem = f"input '{name}' has no shape but model requires batch dimension for '{model}'"
    return _of_request(model, request_id, problem)


def batch_mismatch(model: str, request_id: str, name: str) -> str:
    """Inputs of one request with different numbers of rows."""
    problem = f"input '{name}' batch size does not match other inputs for '{model}'"
    return _of_request(model, request_id, problem)


def batch_too_large(model: str, request_id: str, limit: int) -> str:
    """More rows than max_batch_size."""
    return _of_request(model, request_id, f"inference request batch-size must be <= {limit} for '{model}'")


def byte_size_mismatch(model: str, request_id: str, name: str, expected: int, text: bool) -> str:
    """An input of no rows, where a row is not empty; `expected` counts bytes, or elements of text."""
    problem = (
        f"expected {expected} string elements for inference input '{name}' for model '{model}', got 0"
        if text
        else f"input byte size mismatch for input '{name}' for model '{model}'. Expected {expected}, got 0"
    )
    return _of_request(model, request_id, problem)


def no_rows(model: str, request_id: str, name: str, shape: Sequence[int]) -> str:
    """A batch of no rows that the server lets pass, and then answers wrongly or never."""
    problem = (
        f"input '{name}' for model '{model}' has shape [{','.join(map(str, shape))}]: a batch needs one row "
        "at least. (The real server would keep the caller waiting forever, or drop the batch dimension.)"
    )
    return _of_request(model, request_id, problem)


def _not_created(problem: str, remedy: str) -> str:
    return (
        "BackendMemory::Create, all allocation types failed:\n"
        f"\tGPU: {problem}\n"
        f"\tGPU_POOL: CudaMemoryManager has no preallocated CUDA memory ({remedy})"
    )


def no_gpu(why: str) -> str:
    """Outputs were asked for on a GPU that is not there; `why` says how to have it."""
    return _not_created(
        "failed to get device: CUDA driver version is insufficient for CUDA runtime version",
        f"{why}; or leave preferred_memory out, or ask for the CPU",
    )


def not_placed(device: int, why: str) -> str:
    """Outputs do not fit into the GPU that they were asked for on."""
    return _not_created(why, f"the outputs were asked for on gpu:{device}")


def inputs_not_placed(why: str) -> str:
    """The receiver's copies of the inputs do not fit into the GPU that these are on."""
    return f"Failed to allocate memory for the inputs: {why}"


def only_passive(model: str) -> str:
    """A request to a model that has no instance for it."""
    return running(
        model,
        f"every instance of model '{model}' is passive, and those are handed no requests (the real server "
        "would wait forever). An instance_group without `passive: true` serves them.",
    )


def queue_full(model: str, request_id: str) -> str:
    """As many requests wait as the queue's policy allows."""
    return _of_request(model, request_id, "Exceeds maximum queue size")


def sequence_batch_too_large(model: str) -> str:
    """A request of a sequence with more than one row."""
    return running(
        model, f"inference request to model '{model}' must specify batch-size 1 due to requirements of sequence batcher"
    )


def sequence_without_id(model: str) -> str:
    """A request to a sequence model that names no sequence."""
    return running(model, f"inference request to model '{model}' must specify a non-zero or non-empty correlation ID")


def sequence_without_start(model: str, sequence: int | str) -> str:
    """A request of a sequence that is not under way, and does not start it."""
    return running(
        model,
        f"inference request for sequence {sequence} to model '{model}' must specify the START flag on the "
        "first request of the sequence",
    )


def blocking_exec(model: str, callee: str) -> str:
    """A request was sent with `exec` from the event loop of an async `execute`."""
    return (
        f"model '{model}': exec of '{callee}' inside an async execute stops its event loop until the answer "
        "is there; use `await request.async_exec()`"
    )


def never_finalised(model: str) -> str:
    """A sender was dropped after a response, but without the final flag."""
    return (
        f"model '{model}': the response sender was dropped without its final flag; send the response with "
        "flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
    )


def unread_responses(model: str, number: int, size: int) -> str:
    """Responses pile up, because they are sent quicker than they are read."""
    return (
        f"model '{model}': {number:,} responses to one request ({quantities.size(size)}) wait to be read, "
        "and stay in memory until then; Triton holds no sender back either, unless it has "
        "--grpc-max-response-pool-size. Read them as they come, or cancel the request"
    )
