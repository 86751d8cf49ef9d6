"""Registration of the capability `checking`."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "checking",
    uses=("engines",),
    names={"check": ".all_checks:check"},
    types={"Findings": ".records:Findings"},
    commands={"check": ".operations:CHECK"},
    verbs={"check": ".operations:CHECK"},
    displays={".records:Findings": Drawing(".display:findings_document")},
)
