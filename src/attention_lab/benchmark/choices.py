"""The choices that the configs offer, read as plain types."""

from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from attention_lab.benchmark.options import BenchmarkError

CHECKOUT = Path(__file__).parents[3]
"""Where the package's source, `train.py` and the configs lie."""

CONFIGS = CHECKOUT / "configs"


def read_choices(group: str) -> dict[str, dict[str, Any]]:
    """Returns every config of a group, such as `attention`, under its name.

    Raises:
        BenchmarkError: there are none, as where the package was installed without its folder.
    """
    files = sorted((CONFIGS / group).glob("*.yaml"))
    if not files:
        raise BenchmarkError(f"{CONFIGS / group} holds no configs; run from a checkout installed with `pip install -e`")
    return {file.stem: cast(dict[str, Any], OmegaConf.to_container(OmegaConf.load(file))) for file in files}
