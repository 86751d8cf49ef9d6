"""Registration of the inspection capability."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "inspection",
    needs=("lifetimes",),
    names={"inspect": ".inspection:inspect", "watch": ".repository_watch:watch"},
    types={"Inspection": ".inspection:Inspection", "Watch": ".repository_watch:Watch"},
    magics={"%blsinspect": ".operations:INSPECT", "%blswatch": ".operations:WATCH"},
    displays={
        "bls_notebook.pb_utils.response:InferenceResponse": Drawing(display=".display:inspected_display"),
        "bls_notebook.pb_utils.tensor:Tensor": Drawing(display=".display:inspected_display"),
        "bls_notebook.records.statistics:DeviceTable": Drawing(".statistics_table:devices_document"),
        "bls_notebook.records.statistics:FamilyRecord": Drawing(many=".statistics_table:metrics_document"),
        "bls_notebook.records.statistics:StatisticsRecord": Drawing(many=".statistics_table:statistics_document"),
        ".inspection:Inspection": Drawing(display=".display:render_inspection"),
        ".records:Compared": Drawing(".differences_table:compared_document"),
        ".records:TensorView": Drawing(".display:tensor_view_document"),
        ".records:ResponseView": Drawing(".display:response_view_document"),
        ".records:ModelView": Drawing(".display:model_view_document"),
        ".repository_watch:Watch": Drawing(display=".display:render_watch"),
    },
)
