"""Between Hydra and a command: a plain config on the way in, the right exit code on the way out.

0 done, 2 the user's mistake, 130 and 143 after Ctrl-C and SIGTERM, 1 anything else.
"""

import contextlib
import errno
import functools
import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from attention_lab.cli.overrides import check_choices, check_no_choice, explain
from attention_lab.errors import Interrupted, SettingError
from attention_lab.launch.world import ProcessLost, ended_by_launcher, launcher, rank
from attention_lab.runs.folder import Occupied, refuse_used, resumed_run, value_of

_FULL_ERROR = "HYDRA_FULL_ERROR"


def plain(config: DictConfig) -> dict[str, Any]:
    """Returns the resolved config as plain types.

    Raises:
        SettingError: a value is missing or refers to one that does not exist.
    """
    try:
        return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    except MissingMandatoryValue as error:
        raise SettingError(f"{error.full_key} is missing; give it as {error.full_key}=VALUE") from error
    except OmegaConfBaseException as error:
        # The first line says what is wrong, and the key where.
        raise SettingError(f"{error.full_key}: {str(error).partition(chr(10))[0]}") from error


def run_dir() -> Path:
    """Returns the folder that Hydra made for this run."""
    return Path(HydraConfig.get().runtime.output_dir)


def record() -> dict[str, str]:
    """Returns what Hydra would write into a run's `.hydra/` before anything is checked, by file name.

    A command that may be refused writes it itself, once it is not.
    """
    job = HydraConfig.get()
    return {
        "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": job})),
        "overrides.yaml": OmegaConf.to_yaml(job.overrides.task),
    }


def run(job: Callable[[DictConfig], None], config_dir: Path, config_name: str, resumable: bool = False) -> None:
    """Runs a job with the config that the command line asks for, and exits with the right code.

    A user's mistake becomes one line on standard error; its traceback shows with HYDRA_FULL_ERROR=1 only.

    Args:
        job: what to do with the composed config.
        config_dir: the folder of the configs.
        config_name: the top config.
        resumable: whether `resume=` makes the job go on in the folder, and with the config, of an earlier run.
    """
    # Waiting threads of PyTorch's OpenMP spin for milliseconds; on a machine that does anything else besides, a step
    # then takes ten times as long. A shorter spin costs nothing on an idle one. Read once, when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    _check_flags(sys.argv[1:])
    wants_traceback = os.environ.get(_FULL_ERROR, "0") not in ("", "0")
    # What cannot be logged is no reason to fill the terminal with tracebacks; what cannot be saved is told.
    logging.raiseExceptions = False
    # Hydra then hands errors on instead of printing them its own way and exiting with 1.
    os.environ[_FULL_ERROR] = "1"
    for signum in (signal.SIGINT, signal.SIGTERM):
        # Not a KeyboardInterrupt: Lightning would catch it and exit with 1.
        signal.signal(signum, _stop)
    resumed = _resumed(config_dir, config_name, wants_traceback) if resumable else None
    running = False

    @functools.wraps(job)
    def checked(config: DictConfig) -> None:
        nonlocal running
        running = True
        try:
            check_choices(_overrides(), config_dir, config_name)
            job(config)
        except SettingError as error:
            if rank() > 0 and ended_by_launcher(seconds=30.0):
                # The first process has said it, and cleared up; Hydra may have made this one a folder since.
                with contextlib.suppress(OSError):
                    run_dir().rmdir()
                sys.exit(2)
            if rank() == 0 and resumed is None and not isinstance(error, Occupied):
                _remove_if_unused(run_dir())
            # Here and not further out, since Hydra writes lines of its own about any exception that leaves a job.
            sys.exit(_complain(str(error), wants_traceback))
        except ProcessLost as error:
            sys.exit(_complain(str(error), wants_traceback, status=1))
        except OSError as error:
            # TensorBoard's files have names of bytes.
            if error.errno not in _NO_ROOM and not os.fsdecode(error.filename or "").startswith(str(run_dir())):
                raise
            sys.exit(_complain(_no_room(error), wants_traceback, status=1))
        running = False

    used = (config_dir, config_name) if resumed is None else (resumed / ".hydra", "config")
    try:
        hydra.main(version_base="1.3", config_path=str(used[0]), config_name=used[1])(checked)()
    except Interrupted as stop:
        sys.exit(128 + stop.signum)
    except Exception as error:
        # Between jobs there is only Hydra, and what it refuses is what the user asked for.
        if running:
            raise
        sys.exit(_complain(explain(error, sys.argv[1:], config_dir, config_name), wants_traceback))


def _resumed(config_dir: Path, config_name: str, wants_traceback: bool) -> Path | None:
    """Returns the folder of the run that is to go on, and makes Hydra work in it and take its config for the default.

    What was composed once is not composed again: defaults may have changed since.
    """
    arguments = sys.argv[1:]
    try:
        if rank() == 0:
            refuse_used(arguments)
        resumed = resumed_run(arguments)
        if resumed is None and launcher() and value_of("hydra.run.dir", arguments) is None:
            raise SettingError(
                "hydra.run.dir is missing: where torchrun or srun starts the processes, name one folder for all of them"
            )
        if resumed is not None:
            check_no_choice(arguments, config_dir, config_name)
    except SettingError as error:
        sys.exit(_complain(str(error), wants_traceback))
    if rank() > 0:
        # The first process writes the log.
        sys.argv[1:] += ["hydra/job_logging=disabled"]
    if resumed is not None:
        sys.argv[1:] = [
            # What lies in the folder may not say whom to trust; what is typed may, and comes after it.
            "++trust=[]",
            *(text for text in arguments if not text.startswith("resume=")),
            f"++resume='{resumed}'",
            f"hydra.run.dir='{resumed}'",
            "hydra.output_subdir=null",
            f"hydra.job.name={config_name}",
            f"hydra.searchpath=['file://{config_dir}']",
            f"hydra/job_logging={'plain' if rank() == 0 else 'disabled'}",
        ]
    return resumed


def _overrides() -> list[str]:
    """Returns this job's part of the command line, with references like ${seed} as they were typed."""
    return cast(list[str], OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False))


def _remove_if_unused(folder: Path) -> None:
    """Removes a run directory that holds nothing but what Hydra has just put there: the config and an empty log."""
    hydras = {folder / ".hydra" / f"{name}.yaml" for name in ("config", "hydra", "overrides")}
    files = {path for path in folder.rglob("*") if not path.is_dir()}
    logs = {path for path in files - hydras if path.parent == folder and path.suffix == ".log"}
    if files - hydras - logs or any(path.stat().st_size for path in logs):
        return
    for path in files:
        path.unlink()
    for empty in (folder / ".hydra", folder):
        with contextlib.suppress(OSError):
            empty.rmdir()


def _check_flags(arguments: list[str]) -> None:
    """Ends the process where argparse would print its whole usage about a flag that does not exist."""
    from hydra._internal.utils import get_args_parser

    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):
            get_args_parser().parse_args(arguments)
    except SystemExit as end:
        flag = next((text for text in arguments if text.startswith("-")), "")
        hint = f"; settings are written without dashes, like {flag.strip('-').partition('=')[0] or 'seed'}=VALUE"
        hint += ", and --help shows what there is"
        reason = usage.getvalue().strip().rpartition("error: ")[2]
        sys.exit(_complain(f"{flag}: {reason}{hint}", with_traceback=False) if end.code else 0)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _no_room(error: OSError) -> str:
    return (
        f"hydra.run.dir={run_dir()} cannot be written any more: {error.strerror}; what was written before is whole, so "
        "that a training can go on from it (resume=FOLDER) once there is room"
    )


def _complain(message: str, with_traceback: bool, status: int = 2) -> int:
    if with_traceback:
        traceback.print_exc()
    if rank() == 0:
        # The others say the same.
        print("error:", " ".join(message.split()), file=sys.stderr)
    return status


def _stop(signum: int, _: FrameType | None) -> None:
    for further in (signal.SIGINT, signal.SIGTERM):
        # Once is enough; another one would tear what the first has started.
        signal.signal(further, signal.SIG_IGN)
    raise Interrupted(signum)
