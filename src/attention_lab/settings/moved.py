"""Classes that once had other names, so that the configs of earlier runs still name them."""

MOVED_TARGETS: dict[str, str] = {
    "attention_lab.positions.absent.NoPosition": "attention_lab.positions.none.NoPositionalEncoding"
}
"""The present `_target_` by the former one."""
