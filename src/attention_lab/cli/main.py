"""Between Hydra and a command: a composed config on the way in, the right exit code on the way out.

0 done, 2 the user's mistake, 130 and 143 after Ctrl-C and SIGTERM, 1 anything else.
"""

import copy
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from hydra._internal.hydra import Hydra
from hydra._internal.utils import _run_hydra, get_args_parser  # pyright: ignore[reportPrivateUsage] - see _show
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from attention_lab.cli import sweep
from attention_lab.cli.arguments import Arguments, first_line, read
from attention_lab.cli.configs import Configs
from attention_lab.cli.explaining import check, explained
from attention_lab.cli.job import SIGNALS, Job, Outcome, full_error, prepare_process
from attention_lab.errors import Interrupted, SettingError
from attention_lab.launch.world import ended_by_launcher, launcher, rank
from attention_lab.runs.folder import SWEEP, named_run
from attention_lab.runs.paths import quoted, typed


def run(
    main: Callable[[DictConfig], None],
    config_dir: Path,
    config_name: str,
    path_setting: str,
    resumable: bool = False,
) -> None:
    """Runs a command with the config that the command line asks for, and exits with the right code.

    A user's mistake becomes one line on standard error; its traceback shows with HYDRA_FULL_ERROR=1 only.

    Args:
        main: what to do with the composed config.
        config_dir: the folder of the configs.
        config_name: the top config.
        path_setting: the setting that a path belongs to which is typed alone.
        resumable: whether `resume=` makes the command go on in the folder, and with the config, of an earlier run.
    """
    prepare_process()
    SIGNALS.received = None
    try:
        with ExitStack() as links:
            arguments = read(sys.argv[1:], path_setting)
            typed_now: tuple[str, ...] | None = None
            if resumable and not arguments.only_shows:
                arguments, typed_now = _resumed(arguments, links)
            configs = Configs.asked_for(arguments.flags, config_dir, config_name)
            job = Job(main, configs, resumable, typed_now, os.getpid())
            check(configs, arguments)
            status = (_show if arguments.only_shows else _run)(job, arguments)
    except SettingError as error:
        if full_error():
            traceback.print_exc()
        status = _complain([str(error)], 2)
    except Interrupted as stop:
        status = 128 + stop.signum
    sys.exit(status)


def _resumed(arguments: Arguments, links: ExitStack) -> tuple[Arguments, tuple[str, ...] | None]:
    """Returns what Hydra is to run and, for a run that goes on, what was typed for it.

    Args:
        arguments: what was typed.
        links: keeps what stands for a folder until the command ends.

    Raises:
        SettingError: there is no such run, or the command line asks for something else besides.
    """
    for override in arguments.parsed():
        if override.key_or_group == "resume" and override.is_sweep_override():
            raise SettingError(str(override.input_line), reason="names several; a sweep goes on with resume=ITS_FOLDER")
    named, gives = arguments.value_of("resume"), arguments.value_of
    if launcher() and (arguments.multirun or (gives("hydra.run.dir") is None and named in (None, "auto"))):
        hint = "where torchrun or srun starts the processes, name one folder for all of them"
        raise SettingError("hydra.run.dir", reason=f"is missing; {hint}, and leave -m out")
    if named in (None, "", "auto"):
        return arguments, None
    folder = named_run(str(named))
    if (begun_with := gives("init_from")) is not None:
        raise SettingError("init_from", begun_with, f"starts a new run, but resume={named} goes on with an old one")
    for setting in ("hydra.run.dir", "hydra.sweep.dir"):
        if (elsewhere := gives(setting)) is not None:
            raise SettingError(setting, elsewhere, f"does not go with resume={named}: it goes on in its folder")
    where = f"dir={quoted(str(_for_hydra(folder, links)))}"
    if (folder / SWEEP).is_file():
        return sweep.continued(arguments, folder).plus(f"hydra.sweep.{where}", "resume=auto"), None
    if arguments.multirun:
        raise SettingError("resume", named, "goes on with one run; leave -m out")
    settings = [override for override in arguments.parsed() if not override.is_hydra_override()]
    hydras = arguments.without(*(override.key_or_group for override in settings))
    return hydras.plus(f"hydra.run.{where}"), tuple(str(each.input_line) for each in settings)


def _for_hydra(folder: Path, links: ExitStack) -> Path:
    """Returns a path to a folder that Hydra can put into a config and read from there: one without `${`."""
    if "${" not in str(folder):
        return folder
    link = Path(links.enter_context(TemporaryDirectory())) / "run"
    link.symlink_to(folder)
    return link


def _run(job: Job, arguments: Arguments) -> int:
    """Runs the job, once or for every member of a sweep, and returns the exit status."""
    hydra = Hydra.create_main_hydra2(job.configs.name, job.configs.search_path)
    name, folder = job.configs.name, None
    arguments = _named_by_what_differs(arguments)
    try:
        config = hydra.compose_config(name, list(arguments.overrides), RunMode.MULTIRUN, validate_sweep_overrides=False)
        HydraConfig.instance().set_config(config)
        several = arguments.multirun or config.hydra.mode == RunMode.MULTIRUN
        # Of a path with the time in it there is one.
        where = _folder(config, "hydra.sweep.dir" if several else "hydra.run.dir")
        if several:
            arguments = arguments.without("hydra.sweep.dir").plus(f"hydra.sweep.dir={quoted(where)}")
            folder = Path(where).resolve()
            if job.resumable and (folder / SWEEP).exists() and arguments.value_of("resume") != "auto":
                hint = f"choose a new folder, or go on with it: {typed('resume', folder)}"
                raise SettingError("hydra.sweep.dir", where, f"holds a sweep already; {hint}")
            batches = hydra.multirun(name, job, [*arguments.overrides, "hydra.mode=MULTIRUN"])
            return _end_sweep([_outcome(done) for batch in batches for done in batch], folder, job)
        if rank() > 0:
            return _end(_beside_the_first(hydra, job, arguments))
        return _end(_outcome(hydra.run(name, job, [*arguments.overrides, "hydra.mode=RUN"])))
    except Interrupted:
        if folder is not None and job.resumable:
            print(sweep.commands(folder)[-1], flush=True)
        raise
    except SettingError:
        raise
    except Exception as error:
        if SIGNALS.received is not None:
            raise Interrupted(SIGNALS.received) from error
        raise _explained(error, job.configs, arguments, folder) from error
    finally:
        GlobalHydra.instance().clear()


def _named_by_what_differs(arguments: Arguments) -> Arguments:
    """Returns a sweep's command line with one more setting: what all of its runs have is no part of their names."""
    setting = "hydra.job.config.override_dirname.exclude_keys"
    alike = [each.key_or_group for each in arguments.parsed() if not each.is_sweep_override()]
    if len(alike) == len(arguments.overrides) or setting in alike:
        return arguments
    return arguments.plus(f"{setting}=[{','.join(map(quoted, alike))}]")


def _folder(config: DictConfig, setting: str) -> str:
    """Returns the folder that is to be made, unless Hydra, which puts its path into a config, could not read it there.

    Raises:
        SettingError: it has `${` in it.
    """
    folder = str(OmegaConf.select(config, setting))
    for path, where in ((folder, folder), (os.getcwd(), f"{folder} in {os.getcwd()}")):
        if "${" in path:
            hint = "has ${ in its path, which Hydra takes for a setting; choose another folder"
            raise SettingError(setting, where, hint)
    return folder


def _outcome(done: JobReturn) -> Outcome:
    assert isinstance(done.return_value, Outcome)
    return done.return_value


def _beside_the_first(hydra: Hydra, job: Job, arguments: Arguments) -> Outcome:
    """Runs a job as one of several processes, of which the first one makes the folder and writes into it."""
    config = hydra.compose_config(job.configs.name, list(arguments.overrides), RunMode.RUN)
    HydraConfig.instance().set_config(config)
    with read_write(config.hydra.runtime), open_dict(config.hydra.runtime):
        config.hydra.runtime.output_dir = os.path.abspath(str(config.hydra.run.dir))
    HydraConfig.instance().set_config(config)
    own = copy.deepcopy(config)
    with open_dict(own):
        del own["hydra"]
    return job(own)


def _end(outcome: Outcome) -> int:
    return outcome.status if outcome.told or not outcome.status else _complain([outcome.text], outcome.status)


def _end_sweep(outcomes: Sequence[Outcome], folder: Path, job: Job) -> int:
    status = sweep.status_of(outcomes)
    lines = ["", *sweep.summary(outcomes, folder)]
    if job.resumable:
        lines += ["", *sweep.commands(folder)]
    print("\n".join(lines), flush=True)
    return status if status > 128 else _complain(sweep.complaints(outcomes, folder), status)


def _show(job: Job, arguments: Arguments) -> int:
    """Shows what a flag asks for and returns the exit status."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    # Hydra then hands errors on instead of printing them its own way and exiting with 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    arguments.flags.overrides = list(arguments.overrides)
    try:
        # What hydra.main() does, with flags that were read already.
        _run_hydra(arguments.flags, get_args_parser(), job, job.configs.folder, job.configs.name)
    except SystemExit as end:
        # Of a package that does not exist, for one.
        return 2 if end.code else 0
    except Exception as error:
        raise _explained(error, job.configs, arguments, None) from error
    finally:
        os.environ.pop("HYDRA_FULL_ERROR") if before is None else os.environ.update(HYDRA_FULL_ERROR=before)
    return 0


def _explained(error: Exception, configs: Configs, arguments: Arguments, folder: Path | None) -> Exception:
    """Returns what is wrong where Hydra has stopped before, or between, the runs."""
    wrong = explained(configs, arguments.overrides, arguments.multirun)
    if wrong is not None:
        return wrong
    if folder is not None and (folder / SWEEP).exists():
        # Every run could be composed: whoever runs them has failed.
        return error
    if isinstance(error, OSError) or "configure handler" in str(error):
        where = next((o for o in arguments.overrides if o.startswith(("hydra.run.dir=", "hydra.sweep.dir="))), None)
        reason = error.strerror if isinstance(error, OSError) else "a file in it cannot be opened"
        return SettingError(where or "hydra.run.dir", reason=f"cannot be written: {reason}; choose another folder")
    return SettingError(first_line(error))


def _complain(lines: Sequence[str], status: int) -> int:
    if status and rank() > 0:
        # The first process says the same. Whoever started them ends all as soon as one has ended: it must be that one.
        ended_by_launcher(seconds=30.0)
        return status
    for line in lines:
        print("error:", " ".join(line.split()), file=sys.stderr)
    return status
