"""Registration of the sweeps capability."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "sweeps",
    needs=("network", "shipping", "profiling"),
    names={"sweep": ".sweeper:sweep"},
    types={"Sweep": ".records:Sweep"},
    loaders={"bls_notebook.sweep": ".records:load_sweep"},
    magics={"%blssweep": ".operations:SWEEP"},
    displays={".records:Sweep": Drawing(".display:sweep_document")},
)
