"""How figures are written for people."""


def figure(value: float | None) -> str:
    """Returns a figure with four digits; a dash where there is none."""
    return "–" if value is None else f"{value:.4f}"
