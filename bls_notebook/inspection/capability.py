"""What this capability adds to the package."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "inspection",
    needs=("profiling", "lifetimes"),
    names={"inspect": ".inspection:inspect", "watch": ".repository_watch:watch"},
    types={"Inspection": ".inspection:Inspection", "Watch": ".repository_watch:Watch"},
    magics={"%blsinspect": ".magic:MAGIC"},
    verbs={"watch": ".verbs:WATCH"},
    displays={
        "bls_notebook.pb_utils.response:InferenceResponse": Drawing(display=".display.tensors:inspected_display"),
        "bls_notebook.pb_utils.tensor:Tensor": Drawing(display=".display.tensors:inspected_display"),
        ".inspection:Inspection": Drawing(),
        ".records:TensorView": Drawing(".display.tensors:tensor_view_document"),
        ".records:ResponseView": Drawing(".display.tensors:response_view_document"),
        ".records:ModelView": Drawing(".display.models:model_view_document"),
        ".repository_watch:Watch": Drawing(display=".display.watch_panel:render_watch"),
    },
    shell=(".notebook_inspectors:add_inspectors",),
)
