"""What tells one run from another, as a flat table."""

from collections.abc import Collection

from attention_lab.settings.schema import Config


def flat_settings(config: Config, named: Collection[str] | None = None) -> Config:
    """Returns the settings that make a run what it is, under the names that the command line uses.

    How it is watched makes no difference, so callbacks and loggers are left out. A component goes by the name under
    which it was chosen, `attention: linformer`, or by that of its class where this is not known.

    Args:
        config: a run's whole config.
        named: the components that may go by their choice's name; all where not given.
    """
    choices = {name: choice for name, choice in config.get("choices", {}).items() if named is None or name in named}
    found: Config = {}
    for name, value in config.items():
        if not isinstance(value, dict):
            found[name] = value
        elif name not in ("callbacks", "logger", "choices"):
            for inner, setting in value.items():
                if inner == "_target_":
                    found[name] = choices.get(name, setting.rpartition(".")[2])
                else:
                    found[f"{name}.{inner}"] = setting
    return found
