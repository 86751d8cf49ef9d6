"""What this capability adds to the package."""

from bls_notebook.extending import Capability

CAPABILITY = Capability("engines", backends={"onnxruntime": ".onnxruntime", "pytorch": ".pytorch"})
