"""Between Hydra and a command: a plain config on the way in, the right exit code on the way out.

0 done, 2 the user's mistake, 130 and 143 after Ctrl-C and SIGTERM, 1 anything else.
"""

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from attention_lab.configuration.checking import SettingError
from attention_lab.signals import Interrupted

_FULL_ERROR = "HYDRA_FULL_ERROR"
_wants_traceback = os.environ.get(_FULL_ERROR, "0") not in ("", "0")


def plain(config: DictConfig) -> dict[str, Any]:
    """Returns the resolved config as plain types.

    Raises:
        OmegaConfBaseException: a value is missing or cannot be resolved.
    """
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=True))


def run_dir() -> Path:
    """Returns the folder that Hydra made for this run."""
    return Path(HydraConfig.get().runtime.output_dir)


def one_line_errors(job: Callable[[DictConfig], None]) -> Callable[[DictConfig], None]:
    """Ends the process with one line and status 2 where a job raises a SettingError.

    This has to happen inside the job: Hydra writes lines of its own about any exception that leaves it.
    """

    @functools.wraps(job)
    def checked(config: DictConfig) -> None:
        try:
            job(config)
        except MissingMandatoryValue as error:
            sys.exit(_complain(f"{error.full_key} is missing; give it as {error.full_key}=VALUE"))
        except SettingError as error:
            if _wants_traceback:
                raise
            sys.exit(_complain(str(error)))

    return checked


def run(main: Callable[[], None], config_dir: Path, config_name: str) -> None:
    """Runs a Hydra main function and exits with the right code.

    What Hydra itself refuses is a user's mistake as well, told in the same way.

    Args:
        main: the decorated function.
        config_dir: its config folder, to say which settings there are.
        config_name: its top config.
    """
    # Hydra then hands errors on instead of printing them its own way and exiting with 1.
    os.environ[_FULL_ERROR] = "1"
    signal.signal(signal.SIGTERM, _stop)
    try:
        main()
    except (HydraException, OmegaConfBaseException) as error:
        if _wants_traceback:
            raise
        from attention_lab.commands.overrides import explain

        sys.exit(_complain(explain(error, sys.argv[1:], config_dir, config_name)))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except Interrupted as stop:
        sys.exit(128 + stop.signum)


def _complain(message: str) -> int:
    print("error:", " ".join(message.split()), file=sys.stderr)
    return 2


def _stop(signum: int, _: FrameType | None) -> None:
    raise Interrupted(signum)
