"""Registration of the data sets capability."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "data_sets",
    needs=("network", "shipping"),
    names={"batch_function": ".batch_function:batch_function", "map": ".mapping:map"},
    types={
        "BatchFunction": ".batch_function:BatchFunction",
        "MapResult": ".result:MapResult",
        "RowError": ".rows:RowError",
    },
    magics={"%blsmap": ".operations:MAP"},
    displays={".records:MapRecord": Drawing(".display:map_document"), ".result:MapResult": Drawing()},
)
