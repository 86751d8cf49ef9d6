"""The path of a request: models and instances, schedulers, tensors, waits, failures and recording."""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "bls_notebook.pb_utils._runtime": "caller_var",
    "calling": "root_of",
    "core.execution": "Execution",
    "core.instance": "Instance",
    "core.model": "in_memory LoadedModel wait_until_closed",
    "core.model_spec": "ModelSpec TensorSpec",
    "core.response_cache": "DEFAULT_CACHE_BYTES",
    "core.server": "Server servers",
    "core.signature_check": "input_reshapes output_reshapes Reshape",
    "core.tensor_data": "bytes_array",
    "errors": "BLSError ConfigError execute_failed ForkedError ModelLoadError ModelNotFoundError unknown_model "
    "without_running",
    "exception_text": "describe facts_of home_of label_of source_of",
    "logs": "LOGGER LogLevels silenced",
    "response_stream": "TicketStream",
    "schedulers.dynamic": "BatchRules DynamicBatcher form",
    "schedulers.ensemble_flow": "EnsemblePlan",
    "ticket": "Ticket",
    "waiting.busy_code": "is_suspended line_behind line_of place running_line",
    "waiting.clock": "system_clock",
    "waiting.event_loops": "in_every_loop mailbox",
    "waiting.interrupts": "CtrlC",
    "waiting.operations": "Operation perform undo WaitInterruptedError",
    "waiting.parker": "blocked Parker requester",
    "waiting.stack_frames": "no_collection stacks",
    "waiting.worker_threads": "start_in_thread",
})  # fmt: skip
