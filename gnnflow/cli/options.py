"""The common parts of stages' commands: options, reading the config, running the stage, printing its summary."""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnflow.cli import stopping
from gnnflow.config import STAGES, load_config
from gnnflow.config.deployment import refuse_unusable
from gnnflow.config.loading import read_config
from gnnflow.graph.errors import ConfigError, GnnflowError, LayerError
from gnnflow.storage.filesystem import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gnnflow.cluster import Cluster
    from gnnflow.config import Config
    from gnnflow.progress import Progress
    from gnnflow.stages.base import StageResult
    from gnnflow.stages.resolve import ResolvedRun

ConfigPath = Annotated[str, typer.Argument(metavar="CONFIG", help="YAML file: a path or any fsspec URL.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. train.lr=0.02.")
]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", metavar="URI", help="Where artifacts and runs live.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def load(config: str, overrides: list[str] | None, workspace: str | None) -> Config:
    """Return the config a command names."""
    return load_config(read_text(config), overrides=overrides or (), workspace=workspace, source=config)


def read_text(config: str) -> str:
    """Return the text of the file a command names."""
    refuse_unusable(config, where="CONFIG")
    if Path(config).exists() and not Path(config).is_file():
        raise ConfigError("is not a file", where=config, fix="Name a YAML file.")  # reading a pipe would wait
    try:
        return read_bytes(config).decode()
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8 text", where=config, fix="Save it as UTF-8; is it a YAML file?") from error


def load_run(config: str, overrides: list[str] | None, workspace: str | None, *, stage: str = "run") -> ResolvedRun:
    """Return the run of the config a command names. Raises one error for all mistakes that stop the stage."""
    from gnnflow.stages.first_look import refuse_first

    read = read_config(read_text(config), overrides=overrides or (), workspace=workspace, source=config)
    leaves_artifact = STAGES[stage].keys is not None
    return refuse_first(read, here=None if stage == "run" else (stage,) if leaves_artifact else ())


def perform(run: ResolvedRun, *stages: str, config_uri: str = "") -> StageResult:
    """Run stages in order with progress on stderr, on the run's cluster; return the last one's result."""
    from gnnflow.cli.progress import open_progress

    with open_progress() as progress, cluster_of(run, progress) as cluster:
        return run_stages(run, stages, cluster=cluster, progress=progress, config_uri=config_uri)


def cluster_of(run: ResolvedRun, progress: Progress) -> Cluster:
    """Return the run's cluster for a `with` block."""
    from gnnflow.stages import entry

    cluster = entry.cluster_of(run, say=progress.message)
    if cluster.config.kind == "local":
        stopping.before_workers()
    return cluster


def run_stages(
    run: ResolvedRun, stages: Sequence[str], *, cluster: Cluster, progress: Progress, config_uri: str
) -> StageResult:
    """Check and run stages in order on a cluster and return the last one's result."""
    from gnnflow.stages import entry
    from gnnflow.stages.base import StageContext

    context = StageContext(run, cluster, progress, config_uri)
    stopping.keeps(run.workspace.uri)
    with refuse_own_code(run.config):
        return [entry.perform(context, stage) for stage in stages][-1]


@contextmanager
def refuse_own_code(config: Config) -> Iterator[None]:
    """Raise the errors of a user's own layer class as LayerError."""
    try:
        yield
    except Exception as error:
        if refusal := _own_code_refusal(config, error):
            raise refusal from error
        raise


def _own_code_refusal(config: Config, error: Exception) -> LayerError | None:
    """Return an error of a user's own layer class as LayerError; None for other errors."""
    if isinstance(error, GnnflowError) or ":" not in config.model.kind:
        return None
    own = _files_of(config.model.kind.partition(":")[0])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(own)]
    if not frames:
        return None
    return LayerError(
        f"{config.model.kind} raised {type(error).__name__}: {error}",
        where=f"{frames[-1].filename}, line {frames[-1].lineno}",
        fix="Fix the class there, or give it other model.options; GNNFLOW_DEBUG=1 shows the whole traceback.",
    )


def _files_of(name: str) -> tuple[str, ...]:
    """Return the path prefixes of all modules of a module's package."""
    package = name.partition(".")[0]
    module = sys.modules.get(package)
    if module is None or package == "gnnflow":
        return ()
    folders = tuple(f"{each}{os.sep}" for each in getattr(module, "__path__", ()))
    return folders or tuple(filter(None, [module.__file__]))


def show(summary: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a stage's summary: one JSON object, or one line per figure."""
    if as_json:
        typer.echo(json.dumps(summary, sort_keys=True))
        return
    for key, value in summary.items():
        typer.echo(f"{key:20} {value}")
