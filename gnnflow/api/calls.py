"""The functions of `import gnnflow`. Each raises a GnnflowError with the command line's words.

config: a path or URL of a YAML file, a dict, or a `gnnflow.Config`. nodes, edges: tables that replace `graph.nodes` and
`graph.edges`, or maps of tables by type and by relation. A table is a path, a URL, or anything with
`__arrow_c_stream__` (a frame of pandas or Polars, a relation of DuckDB, a table of Arrow). overrides: `key=value`, as
of `--set`. workspace: where artifacts and runs live. progress: whether lines are shown on stderr.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from gnnflow import registry
from gnnflow.api.configs import ConfigSource, Given, Tables
from gnnflow.api.performing import Listener, perform, perform_sweep, performing
from gnnflow.api.results import Audited, Checked, Compared, Explained, Planned, Recommended, Run, Scores, Swept
from gnnflow.config.deployment import default_workspace
from gnnflow.graph.errors import ConfigError, RegistryError, StorageError
from gnnflow.stages import entry
from gnnflow.stages.differences import find_differences
from gnnflow.stages.first_look import first_look
from gnnflow.stages.out import out_file, refuse_taken, write_out
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.refusals import locating
from gnnflow.storage.run_folder import PREDICTIONS, list_runs, prediction_files, read_run
from gnnflow.storage.tables import write_table
from gnnflow.storage.workspace import RUN, Workspace

if TYPE_CHECKING:
    from gnnflow.api.batches import Batch
    from gnnflow.layers import Model
    from gnnflow.stages.base import StageResult
    from gnnflow.stages.explain import Plan
    from gnnflow.stages.pipeline import RunResult
    from gnnflow.stages.publish import PublishResult
    from gnnflow.stages.score import ScoreResult

_CONFIG = "config.json"


def run(
    config: ConfigSource,
    *,
    nodes: Tables = None,
    edges: Tables = None,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    progress: bool | Listener = True,
    out: str | None = None,
) -> Run:
    """Run all stages of a config that are not done, and return the run.

    The same config on the same tables is the same run, whether its tables are files or in memory. out: a folder, or a
    file named .parquet, where the predictions also appear.
    """
    given = Given(config, nodes, edges, overrides, workspace)
    with locating(""):
        result = _perform_out(given, "run", Listener.of(progress), out)
        return Run(cast("RunResult", result).uri, result=cast("RunResult", result))


def check(
    config: ConfigSource,
    *,
    nodes: Tables = None,
    edges: Tables = None,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
) -> Checked:
    """Return the tables' columns and everything that would stop the run, from first rows; start nothing.

    Print it, or read `stops`: the errors, none where nothing was found.
    """
    with locating(""):
        return Checked(**vars(first_look(Given(config, nodes, edges, overrides, workspace).read())))


def plan(
    config: ConfigSource,
    *,
    nodes: Tables = None,
    edges: Tables = None,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    seconds: float | None = None,
    progress: bool | Listener = True,
) -> Planned:
    """Estimate the cost of a run per stage: time, bytes and memory, rehearsed on parts of the graph.

    seconds: about how long rehearsals may take; None for a tenth of the run, at most a minute.
    """
    from gnnflow.stages.plan import plan_run

    given = Given(config, nodes, edges, overrides, workspace)
    with locating(""), performing(given.resolve(), listener=Listener.of(progress), config_uri=given.uri) as context:
        return Planned(**vars(plan_run(context, limit=seconds)))


def explain(
    config: ConfigSource | Run,
    id: Any = None,  # noqa: A002 - the column's name
    *,
    of: str | int | None = None,
    nodes: Tables = None,
    edges: Tables = None,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
) -> Plan | Explained:
    """Return how the config's model aggregates: levels, kernels, shapes, and which executions run it.

    With an id, of a run (or its URI or name): why this node got its score, by edge and by column. of: the class to
    explain, by name or number; None for the predicted one.
    """
    from gnnflow.config.messages import join_errors
    from gnnflow.stages.explain import explain_model

    with locating(""):
        if id is not None:
            from gnnflow.stages.explain_score import explain_score

            if not isinstance(config, Run | str):
                raise ConfigError("an id is explained of a run", where="explain", fix="Give a run, its URI or name.")
            return Explained(**vars(explain_score(_uri_of(config, workspace), id, explained=of)))
        if isinstance(config, Run):
            config = config.config
        given = Given(config, nodes, edges, overrides, workspace)
        read = given.read()
        if read.config is None or read.errors:
            raise join_errors(read.errors, source=given.uri)
        return explain_model(read.config)


def sweep(
    experiment: ConfigSource,
    *,
    nodes: Tables = None,
    edges: Tables = None,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    progress: bool | Listener = True,
) -> Swept:
    """Run all combinations of the config's `matrix` and compare them; failed ones are listed, the others continue."""
    given = Given(experiment, nodes, edges, overrides, workspace)
    with locating(""):
        result = perform_sweep(given.read_experiment(), listener=Listener.of(progress), config_uri=given.uri)
        return Swept(**vars(result))


def publish(run: Run, *, progress: bool | Listener = True) -> PublishResult:
    """Publish a run's model as the next version of its name, in service where it is the better one.

    Returns the decision: `version`, `in_service` and `reason`.
    """
    given = Given(_here(run.config, workspace=Workspace.of(run.uri).uri))
    with locating(""):
        result = perform(given.resolve(stage="publish"), "publish", listener=Listener.of(progress))
        return cast("PublishResult", result)


def score(
    model: ConfigSource,
    *,
    nodes: Tables = None,
    edges: Tables = None,
    ids: Sequence[Any] | None = None,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    progress: bool | Listener = True,
    out: str | None = None,
) -> Scores:
    """Score tables with the model in service.

    model: `NAME@champion`, whose config and tables are then the ones it was published with, except the tables given; or
    a config that names the model. ids: score these alone, whose neighbourhoods are then all that is computed; None for
    all. out: a folder, or a file named .parquet, where the predictions also appear. Raises RegistryError where the
    version is not in service, TableError for ids that are not in the tables.
    """
    given = Given(model, nodes, edges, overrides, workspace)
    with locating(""):
        home = workspace or default_workspace()
        if isinstance(model, str) and (version := registry.find_named(model, workspace=home)):
            given = given.with_values(_config_of(version, workspace=home))
        if ids is None:
            return Scores(cast("ScoreResult", _perform_out(given, "score", Listener.of(progress), out)))
        run, file = given.resolve(stage="score"), None if out is None else out_file(out)
        if file is not None:
            refuse_taken(file, run.config)
        with performing(run, listener=Listener.of(progress), config_uri=given.uri) as context:
            scored = entry.score_some(context, ids)
        if file is not None:
            write_table(file, scored.predictions)
        return Scores(scored)


def _perform_out(given: Given, stage: str, listener: Listener, out: str | None) -> StageResult:
    """Run a stage that leaves predictions, and write them where the caller asks, if anywhere."""
    run, file = given.resolve(stage=stage), None if out is None else out_file(out)
    if file is not None:  # before hours of work
        refuse_taken(file, run.config)
    result = perform(run, stage, listener=listener, config_uri=given.uri)
    if file is not None:
        folder = cast("RunResult | ScoreResult", result).predictions.removesuffix(f"/{PREDICTIONS}")
        write_out(folder, prediction_files(folder), file)
    return result


def recommend(
    run: Run | ConfigSource,
    top: int | None = None,
    *,
    exclude_seen: bool | None = None,
    out: str | os.PathLike[str] | None = None,
    embeddings: str | None = None,
    nodes: Tables = None,
    edges: Tables = None,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    progress: bool | Listener = True,
) -> Recommended:
    """List the best of all items for each user of a run that predicts links, with metrics.

    run: a run, its URI or name, NAME@champion, or its config. top: how many; exclude_seen: items are left out that a
    user has an edge to in the graph of the embeddings. None takes `recommend.top` and `recommend.exclude_seen` of the
    config. out: a Parquet file to write the lists to. embeddings: the folder of predictions that `gnnflow score` wrote
    with the run's published model; by default the run's own, which saw no held-out link.
    """
    from gnnflow.stages.recommend import run as make_lists

    if isinstance(run, str) and not _is_config(run):
        with locating(""):
            run = Run(_uri_of(run, workspace))
    if isinstance(run, Run):
        run, workspace = _here(run.config, workspace=Workspace.of(run.uri).uri), None
    asked = {"top": top, "exclude_seen": exclude_seen}
    overrides = (*overrides, *(f"recommend.{key}={value}" for key, value in asked.items() if value is not None))
    given = Given(run, nodes, edges, overrides, workspace)
    with locating(""):
        resolved = given.resolve(stage="recommend")
        with performing(resolved, listener=Listener.of(progress), config_uri=given.uri) as context:
            found = make_lists(context, out=None if out is None else os.fspath(out), embeddings=embeddings)
            return Recommended(**vars(found))


def runs(workspace: str | None = None) -> list[Run]:
    """Return the completed runs of a workspace, the latest last.

    A damaged run is left out, with a warning.
    """
    found = []
    with locating(""):
        for uri in list_runs(Workspace.at(workspace or default_workspace())):
            each = Run(uri)
            try:
                each.headline()
            except StorageError as error:
                warnings.warn(str(error), stacklevel=2)
            else:
                found.append(each)
    return found


def compare(*compared: Run | str, workspace: str | None = None) -> Compared:
    """Return the keys of config and the metrics that differ between completed runs.

    compared: runs, their URIs, or names in the workspace.
    """
    with locating(""):
        if len(compared) < 2:  # noqa: PLR2004
            raise ConfigError("needs two runs or more", where="compare", fix="Name them by their URIs or names.")
        return Compared(**vars(find_differences([_uri_of(each, workspace) for each in compared])))


def audit(run: Run | str, *, workspace: str | None = None) -> Audited:
    """Check from a run's artifacts alone that its scores agree and that none saw what it should not have.

    run: a run, its URI or name, or NAME@champion. Print it, or read `findings` and `broken`. The findings are stored in
    the run's folder as audit.json, and its report shows them.
    """
    from gnnflow.stages.audit import audit_run, keep_audit

    with locating(""):
        return Audited(**vars(keep_audit(audit_run(_uri_of(run, workspace)))))


def load_model(model: Run | str, *, workspace: str | None = None) -> Model:
    """Return a trained model in evaluation mode: a `torch.nn.Module`.

    model: `NAME@champion`, `NAME@candidate` or `NAME@VERSION` of a published one; or a run, its URI or name.
    """
    from gnnflow.layers import saved

    with locating(""):
        home = workspace or default_workspace()
        if isinstance(model, str) and (version := registry.find_named(model, workspace=home)):
            return saved.load_model(version.uri, read=version.read)
        return saved.load_model(read_run(_uri_of(model, workspace))["artifacts"]["train"])


def neighborhoods(
    run: Run | str, ids: Sequence[Any], *, batch_size: int = 256, workspace: str | None = None
) -> Iterator[Batch]:
    """Yield the neighbourhoods of nodes in batches, in the order of the ids, as the run's training saw them.

    run: a run, its URI or name. A batch has `tensors` for a gnnflow model and `to_pyg()` for one of PyG.
    """
    from gnnflow.api.batches import Batch
    from gnnflow.stages.neighborhoods import cut_batches

    with locating(""):
        for cut in cut_batches(_uri_of(run, workspace), ids, batch_size=batch_size):
            yield Batch(cut)


def _uri_of(run: Run | str, workspace: str | None) -> str:
    """Return the folder of the run that every function and command names alike."""
    return run.uri if isinstance(run, Run) else registry.find_run(run, workspace=workspace or default_workspace())


def _is_config(text: str) -> bool:
    """Return whether a text is the path or URL of a config, and not a run's."""
    return text.endswith((".yaml", ".yml", ".json")) or (exists(text) and not exists(join(text, RUN)))


def _config_of(version: registry.Version, *, workspace: str) -> dict[str, Any]:
    """Return the config of a version in service. Raises RegistryError for another version."""
    name = version.name
    if registry.read_aliases(workspace, name).champion != version.version:
        raise RegistryError(
            f"version {version.version} is not in service, and only the champion scores",
            where=name,
            fix=f"Name {name}@champion, or promote it: `gnnflow models promote {name} {version.version}`.",
        )
    held = _here(json.loads(version.read(_CONFIG)), workspace=workspace)
    return {**held, "publish": {**held.get("publish", {}), "name": name}}


def _here(config: Mapping[str, Any], *, workspace: str) -> dict[str, Any]:
    """Return the config of a record for this process: its tasks run where this process would run them."""
    return {**{key: value for key, value in config.items() if key != "cluster"}, "workspace": workspace}
