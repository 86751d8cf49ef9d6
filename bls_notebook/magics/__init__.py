"""Magics: each one parses its line, calls the public API, and displays the result. `extension` adds them to a shell."""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "arguments": "evaluate input_name Parser split_words UnfinishedError",
    "bls_cell": "cell_body",
    "cell_errors": "debug_later display_of fail_on reported",
    "magic": "MagicCall parser_of",
    "notebook": "Notebook",
    "result_lists": "Responses responses_in Streams",
})  # fmt: skip
