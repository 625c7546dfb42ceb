"""Runs stages for a caller: with progress, on the run's cluster, and with errors that the caller can act on."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from gnnflow.api.bugs import listed
from gnnflow.api.lines import Lines
from gnnflow.graph.errors import GnnflowError, LayerError
from gnnflow.progress import Silent
from gnnflow.stages import entry
from gnnflow.stages.base import StageContext, resolve_here
from gnnflow.stages.resolve import cluster_for
from gnnflow.stages.sweep import run_sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.cluster import Cluster
    from gnnflow.config import Config
    from gnnflow.config.experiments import Experiment
    from gnnflow.progress import Progress
    from gnnflow.stages.base import StageResult
    from gnnflow.stages.pipeline import RunResult
    from gnnflow.stages.resolve import ResolvedRun
    from gnnflow.stages.sweep import SweepResult


@dataclass(frozen=True)
class Listener:
    """A caller's ear: opens the progress of a call, and hears before workers start and where work is kept."""

    open_progress: Callable[[], AbstractContextManager[Progress]]
    before_workers: Callable[[], None] = lambda: None
    keeps: Callable[[str], None] = lambda _: None

    @staticmethod
    def of(progress: bool | Listener) -> Listener:  # noqa: FBT001 - a public function's option, passed on
        """Return the listener of a call's option: lines on stderr, none, or the caller's."""
        if isinstance(progress, Listener):
            return progress
        return Listener(Lines if progress else lambda: nullcontext(Silent()))


def perform(run: ResolvedRun, *stages: str, listener: Listener, config_uri: str = "") -> StageResult:
    """Run stages in order on the run's cluster; return the last one's result."""
    with performing(run, listener=listener, config_uri=config_uri) as context:
        return [entry.perform(context, stage) for stage in stages][-1]


@contextmanager
def performing(run: ResolvedRun, *, listener: Listener, config_uri: str = "") -> Iterator[StageContext]:
    """Yield the context of a run's stages, with progress and its cluster."""
    with listener.open_progress() as progress, _cluster_of(run, progress, listener) as cluster:
        listener.keeps(run.workspace.uri)
        with _refuse_own_code(run.config):
            yield StageContext(run, cluster, progress, config_uri)


def perform_sweep(experiment: Experiment, *, listener: Listener, config_uri: str = "") -> SweepResult:
    """Run a sweep with progress. Runs with the same cluster share it."""
    clusters: dict[str, Cluster] = {}
    with listener.open_progress() as progress, ExitStack() as stack:

        def run(config: Config) -> RunResult:
            try:
                resolved = resolve_here(config)
                named = cluster_for(resolved).model_dump_json()
                if named not in clusters:
                    clusters[named] = stack.enter_context(_cluster_of(resolved, progress, listener))
                listener.keeps(resolved.workspace.uri)
                context = StageContext(resolved, clusters[named], progress, config_uri)
                with _refuse_own_code(config):
                    return cast("RunResult", entry.perform(context, "run"))
            except Exception as error:
                raise listed(error) from error

        return run_sweep(experiment, run=run, say=progress.message)


def _cluster_of(run: ResolvedRun, progress: Progress, listener: Listener) -> Cluster:
    """Return the run's cluster for a `with` block."""
    cluster = entry.cluster_of(run, say=progress.message)
    if cluster.config.kind == "local":
        listener.before_workers()
    return cluster


@contextmanager
def _refuse_own_code(config: Config) -> Iterator[None]:
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
