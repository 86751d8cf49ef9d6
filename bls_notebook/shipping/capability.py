"""Registration of the shipping capability: public names, magics, commands, displays."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "shipping",
    needs=("network", "checking", "inspection"),
    names={
        "export": ".exporter:export",
        "prove": ".proof.prover:prove",
        "serve": ".servers.serving:serve",
        "verify": ".proof.prover:verify",
    },
    types={
        "Certificate": ".records:Certificate",
        "Changes": ".records:Changes",
        "Exported": ".records:Exported",
        "LocalServer": ".servers.serving:LocalServer",
        "Verified": ".records:Verified",
        "export_changes": ".changed_models:export_changes",
    },
    commands={"export": ".operations:EXPORT", "prove": ".operations:PROVE", "serve": ".operations:SERVE"},
    verbs={"export": ".operations:EXPORT", "serve": ".operations:SERVE", "prove": ".operations:PROVE"},
    displays={
        ".records:Exported": Drawing(".display:exported_document"),
        ".records:Changes": Drawing(".display:changes_document"),
        ".records:Certificate": Drawing(".display:certificate_document"),
        ".records:Verified": Drawing(".display:verified_document"),
        ".records:ServerRecord": Drawing(".display:served_document"),
        ".servers.serving:LocalServer": Drawing(),
    },
)
