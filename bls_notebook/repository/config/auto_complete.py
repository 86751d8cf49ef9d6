"""Asking the model itself: `auto_complete_config`, and what of its answer counts."""

from __future__ import annotations

import json
from copy import deepcopy

from bls_notebook.engine.errors import ConfigError
from bls_notebook.pb_utils.model_config import ModelConfig

from .complete import fill_defaults
from .from_json import parse_json
from .proto import ModelConfigMessage
from .render import to_json

__all__ = ["auto_complete"]


def auto_complete(config: ModelConfigMessage, model_class: object) -> ModelConfigMessage:
    """Return a new configuration with what `auto_complete_config` of the model, or of its backend's, adds.

    As in Triton only the largest batch size, the inputs, the outputs, a scheduler where there was none
    and the transaction policy are taken over; other changes to the dict are ignored.

    Where the answer is no configuration (a data type without its `TYPE_`, say), Triton drops it: it then
    refuses a model without config.pbtxt, and quietly serves any other without the addition. Here both
    are errors, as is a change of the scheduler.
    """
    completed = deepcopy(config)
    function = getattr(model_class, "auto_complete_config", None)
    if function is None:
        return completed
    answer = function(ModelConfig(to_json(config)))
    if not isinstance(answer, ModelConfig):
        returned = "None" if answer is None else f"a {type(answer).__name__}"
        raise ConfigError(
            f"model '{config.name}': auto_complete_config returned {returned}; "
            "it must return the pb_utils.ModelConfig that it was given"
        )
    source = "auto_complete_config"
    try:
        # As text, because that is how it travels on Triton: what is not JSON there must fail here too.
        text = json.dumps(answer.as_dict())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"model '{config.name}': {source}: {error}; use plain numbers, texts, lists and dicts"
        ) from None
    _merge(completed, parse_json(text, model=config.name, source=source))
    fill_defaults(completed)
    return completed


def _merge(config: ModelConfigMessage, answer: ModelConfigMessage) -> None:
    config.max_batch_size = answer.max_batch_size
    for tensors in ("input", "output"):
        config.ClearField(tensors)
        getattr(config, tensors).extend(getattr(answer, tensors))
    had, has = config.WhichOneof("scheduling_choice"), answer.WhichOneof("scheduling_choice")
    if had is None and has is not None:
        getattr(config, has).CopyFrom(getattr(answer, has))
    elif had != has:
        raise ConfigError(
            f"model '{config.name}': auto_complete_config replaced {had} by {has or 'nothing'}; "
            "a scheduler that the configuration names must stay"
        )
    if answer.HasField("model_transaction_policy"):
        config.model_transaction_policy.decoupled = answer.model_transaction_policy.decoupled
