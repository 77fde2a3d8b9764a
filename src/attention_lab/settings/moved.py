"""Classes that once had other names, so that the configs of earlier runs still name them."""

MOVED_TARGETS: dict[str, str] = {
    "attention_lab.positions.absent.NoPosition": "attention_lab.positions.none.NoPositionalEncoding"
}
"""The present `_target_` by the former one."""


def moved_targets(config: dict[str, object]) -> dict[str, object]:
    """Returns a config whose components have the names that their classes have now."""
    return {name: _moved(section) for name, section in config.items()}


def _moved(section: object) -> object:
    if not isinstance(section, dict) or not isinstance(section.get("_target_"), str):
        return section
    return {**section, "_target_": MOVED_TARGETS.get(section["_target_"], section["_target_"])}
