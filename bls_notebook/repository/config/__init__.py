"""Model configurations (config.pbtxt): parsing, Triton's defaults and validation, and the JSON form.

Importing this package is cheap: the first configuration loads protobuf and Triton's message class.
"""

from .completion import auto_complete, complete
from .parsing import parse_config, parse_json, parse_pbtxt
from .protobuf_message import (
    ModelConfigMessage,
    model_config_class,
    model_config_pb2,
    new_config,
    to_dict,
    to_json,
    to_pbtxt,
)
from .spec_conversion import model_spec, pick_versions
from .validation import validate

__all__ = [
    "ModelConfigMessage", "auto_complete", "complete", "model_config_class", "model_config_pb2", "model_spec",
    "new_config", "parse_config", "parse_json", "parse_pbtxt", "pick_versions", "to_dict", "to_json", "to_pbtxt",
    "validate",
]  # fmt: skip
