"""Magics: each one parses its line, calls the public API, and displays the result. `extension` adds them to a shell."""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "arguments":
        "add_options evaluate help_text identifier input_name new_file parameters_of Parser read_line sequence "
        "split_words UnfinishedError Variables",
    "bls_cell": "cell_body",
    "cell_errors": "debug_later display_of fail_on reported",
    "magic": "Magic magic_named serves Verb verb_named",
    "notebook": "Notebook",
    "result_lists": "Responses responses_in Streams",
})  # fmt: skip
