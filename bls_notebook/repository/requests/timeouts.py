"""Whether a request's timeout can act: only in a queue whose policy lets requests ask for a shorter one."""

from __future__ import annotations

from bls_notebook.engine.core.spec import ModelSpec


def timeout_warnings(spec: ModelSpec, timeout: int) -> tuple[str, ...]:
    """Say why a timeout, in microseconds, cannot act; nothing where it can."""
    if timeout <= 0 or spec.scheduler in ("sequence", "ensemble"):  # a sequence's waits for its slot have one
        return ()
    start = f"model '{spec.name}': the timeout of {timeout:,} µs cannot act"
    if spec.scheduler != "dynamic":
        why = "without dynamic_batching no request expires in the queue; the model can only look at it"
        return (f"{start}: {why}, by request.timeout()",)
    batching = spec.config.dynamic_batching
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    if not any(p.allow_timeout_override for p in policies):
        return (f"{start}: its queue policy does not have allow_timeout_override: true",)
    most = max(p.default_timeout_microseconds for p in policies if p.allow_timeout_override)
    if timeout >= most:
        why = "a request may only ask for less than its queue policy's default_timeout_microseconds"
        return (f"{start}: {why}, {most:,}",)
    return ()
