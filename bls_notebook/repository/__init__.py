"""Models on disk and in cells: layout, config.pbtxt, versions, load and unload, source isolation."""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "bls_notebook.pb_utils.stub_modules": "add_names ADDED API NAMES NEEDED utils_module",
    "call_order": "callees calls_of entries in_order load_with_callees reached runs_python sources_in",
    "environments": "environments_folder shown_requirements",
    "gpus": "gpus_in simulate_gpus",
    "host": "load_again SentRequest",
    "installation": "locked run_installer user_cache",
    "loading.ensembles": "check_members members_of members_of_source",
    "loading.instances": "python_backend",
    "loading.loader": "read_config",
    "modules.module_home": "SourcePlace",
    "repository": "current_repository ModelRepository",
    "requests.inputs": "client_parameters encoded_parameters preferred_memory_of tensors_of",
    "requests.response": "Response",
    "requests.sequences": "correlation_ids sequence_options sequence_spec",
    "requests.tensor_summary": (
        "CHUNK figures GLANCE LARGEST layout_of media_of numbers pictures sampled to_host working_on"
    ),
    "source.model_source": "Stub Values VALUES",
    "statistics": "statistics_of statistics_record_of",
    "substitution.call": "Answer ASK Call Last MADE_UP Waiter",
    "substitution.stub": "ModelStub StubCall",
    "substitution.stub_config": "as_stub backend_of main_file",
    "substitution.substitution": "Substitution",
    "variant": "Variant VariantChange with_count with_fields with_instances",
})  # fmt: skip
