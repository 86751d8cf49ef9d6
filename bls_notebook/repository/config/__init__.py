"""Model configurations (config.pbtxt): parsing, Triton's defaults and validation, and the JSON form.

Importing this package is cheap: the first configuration loads protobuf and Triton's message class.
"""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "completion": "auto_complete complete",
    "field_effects": "decisions idle_fields",
    "parsing": "parse_config parse_json parse_pbtxt",
    "protobuf_message": "model_config_class model_config_pb2 ModelConfigMessage to_dict to_json to_pbtxt",
    "spec_conversion": "datatypes environment_parameter model_spec pick_versions",
    "templates": "fill_templates filled_config lines_of scan Template",
    "validation": "KNOWN_BACKENDS MAX_DIMS validate",
})  # fmt: skip
