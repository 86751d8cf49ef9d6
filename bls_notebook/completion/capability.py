"""Registration of the completion capability: it extends the notebook's shell."""

from bls_notebook.extending import Capability

CAPABILITY = Capability("completion", shell=(".completer:add_completion", ".completer:add_tooltips"))
