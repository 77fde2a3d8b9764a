"""One run: what Hydra calls with a composed config, and how that ended."""

import contextlib
import errno
import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from attention_lab.cli.arguments import first_line, where_it_was_typed
from attention_lab.cli.configs import Configs
from attention_lab.cli.explaining import explained
from attention_lab.cli.signals import Signals
from attention_lab.errors import Interrupted, SettingError
from attention_lab.launch.world import ProcessLost, rank
from attention_lab.runs.folder import Finished, Occupied, check_unused, goes_on
from attention_lab.runs.paths import no_reference, typed_in
from attention_lab.settings.schema import Config

SIGNALS = Signals()
"""Those of this process; a job that is copied to another process finds that one's."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        status: the exit status of a command that does only this.
        folder: the run's.
        overrides: what was asked for.
        text: what came out, or why nothing did.
        told: whether that has been told already.
    """

    status: int
    folder: Path
    overrides: tuple[str, ...]
    text: str
    told: bool = False


@dataclass(frozen=True)
class Job:
    """What Hydra runs, once or for each member of a sweep, here or in another process.

    It raises nothing but `Interrupted`, so that no member ends a sweep.

    Args:
        main: what to do with the composed config.
        configs: where that is composed from.
        resumable: whether what it makes can go on.
        typed: what was typed for a run that is to go on in its folder, in place of what Hydra composes; None if this
            is a new one.
        process: the number of the process that was started by the user.
    """

    main: Callable[[DictConfig], None]
    configs: Configs
    resumable: bool
    typed: tuple[str, ...] | None
    process: int

    def __call__(self, config: DictConfig) -> Outcome:
        elsewhere = os.getpid() != self.process
        if elsewhere:
            prepare_process(waits_for_work=True)
        if SIGNALS.received is not None:
            _remove_if_unused(run_dir())
            return _outcome(128 + SIGNALS.received, "has not begun")
        SIGNALS.running = True
        try:
            with typed_in(Path(HydraConfig.get().runtime.cwd)):
                return self._run(config)
        except Interrupted as stop:
            SIGNALS.received = stop.signum
            if not elsewhere:
                raise
            return _outcome(128 + stop.signum, "interrupted")
        finally:
            SIGNALS.running = False

    def _run(self, config: DictConfig) -> Outcome:
        auto = config.get("resume") == "auto"
        try:
            self.main(where_it_was_typed(self._to_go_on_with(config), Path(HydraConfig.get().runtime.cwd)))
        except Finished as error:
            return _outcome(0, f"{result_in(run_dir())}, had ended before") if auto else self._refused(error)
        except SettingError as error:
            return self._refused(error)
        except ProcessLost as error:
            return _outcome(1, str(error))
        except Exception as error:
            if isinstance(error, OSError) and _cannot_write(error):
                return _outcome(1, _no_room(error))
            traceback.print_exc()
            return _outcome(1, f"{type(error).__name__}: {first_line(error)}", told=True)
        return _outcome(0, result_in(run_dir()))

    def _to_go_on_with(self, config: DictConfig) -> DictConfig:
        """Returns the config of a run that goes on in its folder, or that of a new one.

        What was composed once is not composed again: defaults may have changed since. What was asked for then need
        not be asked for again.

        Raises:
            Occupied: there is a run where a new one was to be.
            Finished: there is one, and it has ended.
        """
        if not self.resumable:
            return config
        folder, asked = run_dir(), config.get("resume")
        if self.typed is not None:
            return self._recorded(folder, self.typed)
        if asked == "auto" and goes_on(folder):
            return self._recorded(folder, _overrides())
        if asked not in (None, "auto"):
            raise SettingError("resume", asked, "is to be typed: here it stands in a file, or has several values")
        check_unused(folder)
        config.resume = None
        return config

    def _recorded(self, folder: Path, typed: Sequence[str]) -> DictConfig:
        before = _asked_before(folder)
        new = [text for text in typed if _name(text) == "trust" or (text not in before and _name(text) != "resume")]
        if not new and self.typed is None and (folder / "metrics.json").exists():
            raise Finished("resume", str(folder), "has ended")
        for override in self.configs.parser().parse_overrides(new):
            if not isinstance(override.value(), dict) and self.configs.choices(override.key_or_group, []):
                raise SettingError(str(override.input_line), reason="cannot change when a run goes on; start a new one")
        # Whom to trust is never recorded, so that there it is a new key.
        new = [f"++{text}" if text.startswith("trust=") else text for text in new]
        own = Configs(str(folder / ".hydra"), "config")
        wrong = explained(own, new, multirun=False)
        if wrong is not None:
            raise wrong
        config = own.compose(new)
        with open_dict(config):
            del config["hydra"]
            config.resume = no_reference(str(folder))
            if "trust" in config and not any(_name(text) == "trust" for text in new):
                # What lies in a folder does not say whom to trust.
                config.trust = []
        return config

    def _refused(self, error: SettingError) -> Outcome:
        if full_error():
            traceback.print_exc()
        file = self.configs.written_in(error.setting, _overrides()) if self.typed is None else None
        # Several processes that train together share the folder, and the first one speaks.
        if self.typed is None and rank() == 0 and not isinstance(error, Occupied):
            _remove_if_unused(run_dir())
        return _outcome(2, str(error) if file is None else f"{error} (in {file})")


def prepare_process(waits_for_work: bool = False) -> None:
    """Makes a process fit to run a job."""
    # Waiting threads of PyTorch's OpenMP spin for milliseconds; on a machine that does anything else besides, a step
    # then takes ten times as long. A shorter spin costs nothing on an idle one. Read once, when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    # What cannot be logged is no reason to fill the terminal with tracebacks; what cannot be saved is told.
    logging.raiseExceptions = False
    if threading.current_thread() is threading.main_thread():
        SIGNALS.listen(waits_for_work)


def say_what_is_loaded() -> None:
    """Says to somebody at a terminal what takes the next seconds."""
    # There is no stdout where it was closed.
    at_terminal = bool(sys.stdout) and sys.stdout.isatty()
    if at_terminal and "torch" not in sys.modules and not SIGNALS.waits_for_work and rank() == 0:
        print("Loading PyTorch ...", flush=True)


def full_error() -> bool:
    """Says whether the user wants to see tracebacks."""
    return os.environ.get("HYDRA_FULL_ERROR", "0") not in ("", "0")


def plain(config: DictConfig) -> Config:
    """Returns the resolved config as plain types.

    Raises:
        SettingError: a value is missing or refers to one that does not exist.
    """
    try:
        return cast(Config, OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    except MissingMandatoryValue as error:
        raise SettingError(str(error.full_key), reason=f"is missing; give it as {error.full_key}=VALUE") from error
    except OmegaConfBaseException as error:
        raise SettingError(str(error.full_key), reason=f"cannot be resolved: {first_line(error)}") from error


def run_dir() -> Path:
    """Returns the folder that Hydra made for this run, by its real path."""
    return Path(HydraConfig.get().runtime.output_dir).resolve()


def record(config: DictConfig) -> dict[str, str]:
    """Returns what Hydra would write into a run's `.hydra/` before anything is checked, by file name.

    A command that may be refused writes it itself, once it is not; a run that goes on keeps what it has.
    """
    if config.get("resume") is not None:
        return {}
    job = HydraConfig.get()
    overrides = [text for text in _overrides() if _name(text) != "resume"]
    return {
        "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": job})),
        "overrides.yaml": yaml.safe_dump(overrides, allow_unicode=True),
    }


def result_in(folder: Path) -> str:
    """Returns what a command has found, in a few words."""
    for name in ("metrics.json", "report.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads((folder / name).read_text(encoding="utf-8"))["test/decoded_exact_match"]
            return f"exact match {found:.4f}"
    return "done"


def _name(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def _asked_before(folder: Path) -> set[str]:
    """Returns what was typed when a run began."""
    try:
        return set(yaml.safe_load((folder / ".hydra" / "overrides.yaml").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, yaml.YAMLError):
        # It only spares typing: what is not known to be old is new.
        return set()


def _outcome(status: int, text: str, told: bool = False) -> Outcome:
    return Outcome(status, run_dir(), tuple(_overrides()), " ".join(text.split()), told)


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


def _cannot_write(error: OSError) -> bool:
    # TensorBoard's files have names of bytes.
    return error.errno in _NO_ROOM or os.fsdecode(error.filename or "").startswith(str(run_dir()))


def _no_room(error: OSError) -> str:
    return (
        f"hydra.run.dir={run_dir()} cannot be written any more: {error.strerror}; what was written before is whole, so "
        "that a training can go on from it (resume=FOLDER) once there is room"
    )
