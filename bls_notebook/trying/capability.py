"""Registration of the capability `trying`."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "trying",
    needs=("checking",),
    names={"try_repository": ".trial:try_repository"},
    types={"Trial": ".trial:Trial", "TrialReport": ".records:TrialReport"},
    commands={"try": ".operations:TRY"},
    verbs={"try": ".operations:TRY"},
    displays={".records:TrialReport": Drawing(".display:trial_document"), ".trial:Trial": Drawing()},
)
