"""Displays: pure functions from records to text and HTML. Nothing here imports IPython or runs a model.

Modules are imported on first use, so that loading the extension stays fast.
"""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "as_html": "document_html output",
    "as_text": "cells clip document_text facts table",
    "html": "Html join prose tag text",
    "mime_bundle": "Display display_of render render_config with_widget",
    "records.errors": "error_box left_out_text log_line_text message_document",
    "records.models": "change_block config_block model_blocks models_table",
    "records.responses": "response_head warning_folds",
    "svg":
        "ALARM Rectangle DIM FONT Ink INK LEFT_BEHIND legend_signs Look model_inks NOTEBOOK Pen picture_html readable "
        "release_inks steps_area width_of",
    "widgets": "covered has_kernel live Names new_place pack_columns VIEW widget_source with_view",
})  # fmt: skip
