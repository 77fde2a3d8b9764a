"""What reaches the terminal: third parties only when a user can act on it, and paths as a user would type them."""

import logging
import os
import shlex
import warnings
from pathlib import Path

from lightning.fabric.utilities.warnings import PossibleUserWarning


def quiet_libraries() -> None:
    """Silences tips, banners and advice that does not apply here; real warnings and errors still come through."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for library in ("lightning.pytorch", "lightning.fabric", "torch.utils.flop_counter", "fontTools"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # "Consider more workers", "fewer batches than the logging interval": measured, and not true of data this small.
    warnings.filterwarnings("ignore", category=PossibleUserWarning)
    # Lightning 2.6 calls what PyTorch 2.13 deprecates.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")


def shown(path: Path) -> str:
    """Returns a path as short as it can be typed here, in quotes where a shell needs them."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
