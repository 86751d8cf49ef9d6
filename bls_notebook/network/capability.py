"""Registration of the network capability: public names, magics, command, displays."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "network",
    names={"connect": ".connection:connect", "endpoint": ".endpoints.endpoint:endpoint"},
    types={"Connection": ".connection:Connection", "Endpoint": ".endpoints.endpoint:Endpoint"},
    commands={"endpoint": ".operations:ENDPOINT"},
    verbs={"connect": ".operations:CONNECT", "endpoint": ".operations:ENDPOINT"},
    displays={
        ".connection:Connection": Drawing(),
        ".records:ConnectionRecord": Drawing(".display:connection_document"),
        ".records:EndpointRecord": Drawing(".display:endpoint_document"),
        ".endpoints.endpoint:Endpoint": Drawing(),
    },
)
