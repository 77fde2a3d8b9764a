"""What tells one run from another, as a flat table."""

from typing import Any

_HOW_IT_IS_WATCHED = ("callbacks", "checkpoint", "early_stopping")


def flat_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that make a run what it is, under the names that the command line uses.

    Args:
        config: a run's whole config. A component goes by its class: `attention: MultiHeadAttention`.
    """
    found: dict[str, Any] = {}
    for name, value in config.items():
        if not isinstance(value, dict):
            found[name] = value
        elif name not in _HOW_IT_IS_WATCHED:
            for inner, setting in value.items():
                if inner == "_target_":
                    found[name] = setting.rpartition(".")[2]
                else:
                    found[f"{name}.{inner}"] = setting
    return found
