"""Registration of the engines capability: the onnxruntime and pytorch backends."""

from bls_notebook.extending import Capability

CAPABILITY = Capability(
    "engines", uses=("simulation",), backends={"onnxruntime": ".onnxruntime", "pytorch": ".pytorch"}
)
