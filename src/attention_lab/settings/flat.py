"""What tells one run from another, as a flat table."""

from typing import Any


def flat_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that make a run what it is, under the names that the command line uses.

    How it is watched makes no difference, so the callbacks are left out.

    Args:
        config: a run's whole config. A component goes by its class: `attention: MultiHeadAttention`.
    """
    found: dict[str, Any] = {}
    for name, value in config.items():
        if not isinstance(value, dict):
            found[name] = value
        elif name != "callbacks":
            for inner, setting in value.items():
                if inner == "_target_":
                    found[name] = setting.rpartition(".")[2]
                else:
                    found[f"{name}.{inner}"] = setting
    return found
