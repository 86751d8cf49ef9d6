"""The core's own public names, magics, verbs and displays, declared in the same way as a capability."""

from bls_notebook.capabilities import Capability, Drawing

CAPABILITY = Capability(
    "core",
    package="bls_notebook",
    names={
        "BLSError": ".records.errors:BLSError",
        "ConfigError": ".engine.errors:ConfigError",
        "InvalidNameError": ".engine.errors:InvalidNameError",
        "ModelLoadError": ".engine.errors:ModelLoadError",
        "ModelNotFoundError": ".engine.errors:ModelNotFoundError",
        "ModelRepository": ".repository.repository:ModelRepository",
        "RepositoryClosedError": ".engine.errors:RepositoryClosedError",
        "Response": ".repository.requests.response:Response",
        "cupy": ".repository.gpus:cupy",
        "current_repository": ".repository.repository:current_repository",
        "list_devices": ".repository.gpus:list_devices",
        "open_file": ".records.record_file:open_file",
        "set_current_repository": ".repository.repository:set_current_repository",
    },
    magics={
        "%%tritonmodel": ".magics.tritonmodel:MODEL_CELL",
        "%%tritonconfig": ".magics.tritonmodel:CONFIG_CELL",
        "%tritonrepo": ".magics.tritonrepo:TRITONREPO",
        "%bls": ".magics.request:BLS",
        "%%bls": ".magics.bls_cell:BLS_CELL",
    },
    verbs={
        "list": ".magics.tritonrepo:LIST",
        "load": ".magics.tritonrepo:LOAD",
        "unload": ".magics.tritonrepo:UNLOAD",
        "reload": ".magics.tritonrepo:RELOAD",
        "config": ".magics.tritonrepo:CONFIG",
        "stats": ".magics.tritonrepo:STATS",
        "metrics": ".magics.tritonrepo:METRICS",
        "devices": ".magics.tritonrepo:DEVICES",
        "environments": ".magics.tritonrepo:ENVIRONMENTS",
        "use": ".magics.tritonrepo:USE",
        "clear": ".magics.tritonrepo:CLEAR",
    },
    commands={"environments": ".magics.tritonrepo:ENVIRONMENTS"},
    completions={"FILTER": ".magics.tritonrepo:metric_names"},
    displays={
        ".records.environments:EnvironmentRecord": Drawing(
            ".display.records.environments:environment_document",
            many=".display.records.environments:environments_document",
        ),
        ".records.errors:ErrorRecord": Drawing(".display.records.errors:error_document"),
        ".records.messages:MessageRecord": Drawing(".display.records.errors:message_document"),
        ".records.models:ModelRecord": Drawing(
            ".display.records.models:model_document", many=".display.records.models:models_document"
        ),
        ".records.responses:ResponseRecord": Drawing(
            ".display.records.responses:response_document", many=".display.records.responses:responses_document"
        ),
        ".records.responses:StreamRecord": Drawing(many=".display.records.responses:streams_document"),
        ".repository.repository:ModelRepository": Drawing(),
        ".repository.requests.response:Response": Drawing(),
    },
)
