"""`ModelConfig`, which a model's `auto_complete_config` fills in, and look-ups in a configuration dict.

Errors use Triton's wording, because models and the loader of the repository read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class ModelConfig:
    """A model's configuration while its `auto_complete_config` runs; `model_config` is JSON text."""

    def __init__(self, model_config: str) -> None:
        self._model_config: dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration so far. Change it through the methods, not through this dict."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch, 0 for none; ValueError if the configuration allows larger ones."""
        configured = self._model_config["max_batch_size"]
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in auto-complete-config function "
                f"for model '{self._name}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Use the dynamic batcher; ValueError if another scheduler is configured."""
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{other}', but auto-complete-config "
                    f"function for model '{self._name}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: dict[str, Any]) -> None:
        """Add an input, or complete one of the same name.

        Parameters
        ----------
        input : dict
            With ``name``, ``data_type`` (such as ``TYPE_FP32``), ``dims``, and optionally ``optional``.

        Raises
        ------
        ValueError
            A property is unknown, missing, or contradicts the configuration.
        """
        self._add("input", input, ("name", "data_type", "dims", "optional"))

    def add_output(self, output: dict[str, Any]) -> None:
        """Add an output, or complete one of the same name: as `add_input`, without ``optional``."""
        self._add("output", output, ("name", "data_type", "dims"))

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, Any]) -> None:
        """Set whether the model is decoupled: ``{"decoupled": True}``.

        Raises
        ------
        ValueError
            A property other than ``decoupled``, or the configuration has the opposite value.
        """
        if transaction_policy_dict.keys() - {"decoupled"}:
            raise ValueError(
                f"model transaction property in auto-complete-config function for model '{self._name}' "
                "contains property other than 'decoupled'."
            )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = transaction_policy_dict["decoupled"]
        if policy.get("decoupled", wanted) != wanted:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model '{self._name}', "
                f"which is already set to '{policy['decoupled']}'."
            )
        policy["decoupled"] = wanted

    @property
    def _name(self) -> str:
        return str(self._model_config["name"])

    def _add(self, direction: str, tensor: dict[str, Any], properties: Sequence[str]) -> None:
        function = f"in auto-complete-config function for model '{self._name}'"
        if not set(tensor) <= set(properties):
            *others, last = map(repr, properties)
            raise ValueError(
                f"{direction} '{tensor['name']}' {function} contains property other than {', '.join(others)} "
                f"and {last}."
            )
        for needed in ("name", "data_type", "dims"):
            if needed not in tensor:
                who = direction if needed == "name" else f"{direction} '{tensor['name']}'"
                raise ValueError(f"{who} {function} is missing '{needed}' property.")
        for configured in self._model_config[direction]:
            if configured["name"] == tensor["name"]:
                self._complete(direction, configured, tensor)
                return
        self._model_config[direction].append(tensor)

    def _complete(self, direction: str, configured: dict[str, Any], tensor: dict[str, Any]) -> None:
        name, datatype = tensor["name"], configured["data_type"]
        if datatype not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype {datatype} for "
                f"{direction} '{name}', model provides {tensor['data_type']}"
            )
        is_set = {"dims": bool(configured["dims"]), "optional": "optional" in configured and "optional" in tensor}
        for key in is_set:
            if is_set[key] and configured[key] != tensor[key]:
                raise ValueError(
                    f"model '{self._name}', tensor '{name}': the model expects {key} {tensor[key]} but the "
                    f"model configuration specifies {key} {configured[key]}"
                )
        configured.update(tensor)


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | Any:
    """Return the properties of the input with this name in a configuration dict, or None."""
    return _by_name(model_config, "input", name)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | Any:
    """Return the properties of the output with this name in a configuration dict, or None."""
    return _by_name(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Return whether a configuration dict says that the model is decoupled."""
    if "model_transaction_policy" not in model_config:
        return False
    decoupled: bool = model_config["model_transaction_policy"]["decoupled"]
    return decoupled


def _by_name(model_config: Mapping[str, Any], direction: str, name: str) -> dict[str, Any] | None:
    return next((tensor for tensor in model_config.get(direction, ()) if tensor["name"] == name), None)
