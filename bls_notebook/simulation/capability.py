"""Registration of the simulation capability: the public name and the core's hook."""

from bls_notebook.extending import Capability

CAPABILITY = Capability(
    "simulation",
    names={"simulate_gpus": "bls_notebook.repository.gpus:simulate_gpus"},
    hooks={"simulated GPUs": ".simulated_backend:simulate"},
)
