"""What the core itself adds to the notebook, declared as capabilities declare theirs."""

from bls_notebook.capabilities import Capability, Drawing

CAPABILITY = Capability(
    "core",
    package="bls_notebook",
    magics={
        "%%tritonmodel": ".magics.tritonmodel:MAGIC",
        "%%tritonconfig": ".magics.tritonmodel:CONFIG_MAGIC",
        "%tritonrepo": ".magics.repo.router:MAGIC",
        "%bls": ".magics.request:MAGIC",
        "%%bls": ".magics.cell_body:MAGIC",
    },
    verbs={
        "list": ".magics.repo.showing:LIST",
        "load": ".magics.repo.loading:LOAD",
        "unload": ".magics.repo.loading:UNLOAD",
        "reload": ".magics.repo.loading:RELOAD",
        "config": ".magics.repo.showing:CONFIG",
        "stats": ".magics.repo.showing:STATS",
        "metrics": ".magics.repo.showing:METRICS",
        "devices": ".magics.repo.showing:DEVICES",
        "use": ".magics.repo.loading:USE",
        "clear": ".magics.repo.loading:CLEAR",
    },
    displays={
        ".records.devices:DeviceTable": Drawing(".display.records.devices:devices_document"),
        ".records.repository:Compared": Drawing(".display.records.differences:compared_document"),
        ".records.errors:ErrorRecord": Drawing(".display.records.errors:error_document"),
        ".records.metrics:FamilyRecord": Drawing(many=".display.records.metrics:metrics_document"),
        ".records.repository:MessageRecord": Drawing(".display.records.errors:message_document"),
        ".records.repository:ModelRecord": Drawing(
            ".display.records.models:model_document", many=".display.records.models:models_document"
        ),
        ".records.repository:ResponseRecord": Drawing(
            ".display.records.responses:response_document", many=".display.records.many:responses_document"
        ),
        ".records.statistics:StatisticsRecord": Drawing(many=".display.records.statistics:statistics_document"),
        ".records.repository:StreamRecord": Drawing(many=".display.records.streams:streams_document"),
        ".repository.repository:ModelRepository": Drawing(),
        ".repository.requests.response:Response": Drawing(),
    },
)
