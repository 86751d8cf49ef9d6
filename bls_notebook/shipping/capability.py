"""What this capability adds to the package."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "shipping",
    needs=("network", "checking"),
    names={"export": ".exports.exporter:export", "prove": ".proof.proving:prove", "serve": ".servers.serving:serve"},
    types={
        "Certificate": ".proof.certificate:Certificate",
        "Exported": ".exports.records:Exported",
        "LocalServer": ".servers.serving:LocalServer",
    },
    commands={"export": ".exports.command:EXPORT", "prove": ".proof.command:PROVE", "serve": ".servers.command:SERVE"},
    verbs={"export": ".exports.verbs:EXPORT", "serve": ".servers.verbs:SERVE", "prove": ".proof.verbs:PROVE"},
    displays={
        ".exports.records:Exported": Drawing(".exports.display:exported_document"),
        ".proof.certificate:Certificate": Drawing(".proof.display:certificate_document"),
        ".servers.records:ServerRecord": Drawing(".servers.display:served_document"),
        ".servers.serving:LocalServer": Drawing(),
    },
)
