"""Backends, which execute the requests of an instance: their protocol, the registry, and the Python backend."""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "processes.backend": "ModelProcess Prelude",
    "processes.probes": "ask results",
    "processes.error_facts": "ErrorFacts",
    "processes.environments": "ENVIRONMENT_MARKER environment_at environment_path open_archive unsafe_members",
    "protocol":
        "BackendError BackendModel Deliver DIED Exchange find_backend InThread Modules RemoteConnection "
        "VersionFiles WorkerCode",
    "python": "CLASS_NAME",
})  # fmt: skip
