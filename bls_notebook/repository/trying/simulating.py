"""Simulating GPUs for models that are tried, and saying so."""

from __future__ import annotations

from bls_notebook.repository.gpus import simulate_gpus


def simulated_for(who: str, count: int = 1) -> str:
    """Simulate GPUs where there are none; return what there is to say of it."""
    simulate_gpus(count)
    many = "a GPU is simulated" if count == 1 else f"{count} GPUs are simulated"
    return f"{many} in host memory for {who}: there is none here (`bls.simulate_gpus(0)` ends it)"
