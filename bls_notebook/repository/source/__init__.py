"""Sources of models: folders in Triton's layout, cells, names, fingerprints, and checks of the code."""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "code_analysis":
        "called_models check_source imported_files imported_modules model_class_warnings syntax_tree undefined_names",
    "definition_changes": "numbered_change",
    "model_folders":
        "backend_folders files_below find_model folder_path is_pointer misnamed_folders model_names pointers_in "
        "python_files shown_path version_folders walk working_folder",
    "model_source": "ModelSource RemoteVersions",
    "names": "check_model_name name_problem",
})  # fmt: skip
