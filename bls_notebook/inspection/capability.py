"""What this capability adds to the package."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "inspection",
    names={"inspect": ".inspection:inspect", "watch": ".watching:watch"},
    types={"Inspection": ".inspection:Inspection", "Watch": ".watching:Watch"},
    magics={"%blsinspect": ".magic:MAGIC"},
    verbs={"watch": ".verbs:WATCH"},
    displays={
        "bls_notebook.pb_utils.response:InferenceResponse": Drawing(
            display=".display.tensors:inspected_display"
        ),
        "bls_notebook.pb_utils.tensor:Tensor": Drawing(display=".display.tensors:inspected_display"),
        ".inspection:Inspection": Drawing(),
        ".records:TensorView": Drawing(".display.tensors:tensor_view_document"),
        ".records:ResponseView": Drawing(".display.tensors:response_view_document"),
        ".model_view:ModelView": Drawing(".display.models:model_view_document"),
        ".watching:Watch": Drawing(display=".display.watch_widget:render_watch"),
    },
    shell=(".inspectors:add_inspectors",),
)
