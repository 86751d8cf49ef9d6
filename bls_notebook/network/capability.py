"""What this capability adds to the package."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "network",
    names={"connect": ".connection.connection:connect", "endpoint": ".gateway.server:endpoint"},
    types={"Connection": ".connection.connection:Connection", "Endpoint": ".gateway.server:Endpoint"},
    commands={"endpoint": ".gateway.command:ENDPOINT"},
    verbs={"connect": ".connection.verbs:CONNECT", "endpoint": ".gateway.verbs:ENDPOINT"},
    displays={
        ".connection.connection:Connection": Drawing(),
        ".connection.records:ConnectionRecord": Drawing(".connection.display:connection_document"),
        ".gateway.records:EndpointRecord": Drawing(".gateway.display:endpoint_document"),
        ".gateway.server:Endpoint": Drawing(),
    },
)
