"""The learning rate from step to step."""

import math


def warmup_then_cosine(step: int, warmup_steps: int, max_steps: int, final: float) -> float:
    """Returns the learning rate of a step as a fraction of its peak.

    Rises linearly over `warmup_steps`, so that the last of them runs at the peak, then falls along half a cosine to
    `final`, which the last of `max_steps` reaches.

    Args:
        step: steps done before this one.
        warmup_steps: steps until the peak.
        max_steps: steps in all.
        final: where the cosine ends, as a fraction of the peak.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min(1.0, (step + 1 - warmup_steps) / max(1, max_steps - warmup_steps))
    return final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2
