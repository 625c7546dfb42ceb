"""The table of stages, a row each. `pipelines.py` has the stages of each training strategy.

A row has a stage's name, the stages whose results it reads, the config keys that decide its own result
(`stage_keys.py`), the version of its format and the name of its work function. The command line, the operators,
fingerprints, reports and lineage read this table and nothing else: a new stage is one row here and one module with its
work function. Work is named, not imported, so reading the table is as light as reading a config.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.config import stage_keys
from gnnflow.config.pipelines import PIPELINES
from gnnflow.config.stage_keys import Keys
from gnnflow.config.train_section import pipeline_of

if TYPE_CHECKING:
    from gnnflow.config.root import Config

STORE = "store"
"""In `needs`: the stage that wrote the graph store of this run."""


def _no_code(_: Config) -> tuple[str, ...]:
    return ()


def _always(_: Config) -> bool:
    return True


@dataclass(frozen=True)
class Stage:
    """One stage.

    work: `module:function`. A stage with `keys` leaves an artifact: `work(run: StageRun) -> Made`, done once per
    fingerprint. One without (a check, a publication) is done at every request: `work(context) -> StageResult`.
    needs: the stages whose artifacts it reads, as far as the run has them. version: raised when the same config and
    inputs would give other bytes. own_code: the user's own classes and functions that it runs, as `module:name`; their
    source enters the fingerprint. asked_for: whether a config of a strategy with this stage needs it; asked_by: the key
    to set so that it does. on_demand: a stage that needs it makes it where it is missing. reads_tables: it reads the
    user's tables; starts_from_model: the content of the model in train.start decides its result; writes_store: its
    artifact is a graph store; may_differ: another attempt may write other bytes, so attempts keep separate files.
    quick: for a stage without keys, a `module:function` that says whether running it now touches only a few small
    files.
    """

    name: str
    summary: str
    work: str
    needs: tuple[str, ...] = ()
    version: int = 1
    keys: Callable[[Config], Keys] | None = None
    own_code: Callable[[Config], tuple[str, ...]] = _no_code
    asked_for: Callable[[Config], bool] = _always
    asked_by: str = ""
    on_demand: bool = False
    quick: str = ""
    reads_tables: bool = False
    starts_from_model: bool = False
    writes_store: bool = False
    may_differ: bool = False


STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage(
            "ingest",
            "Turn the tables into the graph store: dense ids, partitions, in-edges sorted by destination.",
            "gnnflow.stages.ingest:work",
            version=9,
            keys=stage_keys.ingest,
            own_code=stage_keys.own_encoders,
            reads_tables=True,
            writes_store=True,
        ),
        Stage(
            "partition",
            "Write the graph store again with other partitions: with few edges between them, or of equal cost.",
            "gnnflow.stages.partition:work",
            needs=(STORE,),
            version=3,
            keys=stage_keys.partition,
            asked_for=stage_keys.rewrites_store,
            asked_by="partition.kind to one that rewrites the store",
            writes_store=True,
        ),
        Stage(
            "select",
            "Choose each node's neighbours once, for every stage and run that aggregates them.",
            "gnnflow.stages.select:work",
            needs=(STORE,),
            keys=stage_keys.select,
            own_code=stage_keys.own_neighbors,
            on_demand=True,
        ),
        Stage(
            "flat",
            "Cut the graph into k-hop neighbourhoods, in self-contained shards (GraphFlat).",
            "gnnflow.stages.flat:work",
            needs=(STORE, "select"),
            version=2,
            keys=stage_keys.flat,
            asked_for=stage_keys.cuts_shards,
            asked_by="train to {strategy: mini-batch, source: shards}",
        ),
        Stage(
            "baselines",
            "Score what a model has to beat: the most frequent class, trees on the columns, popularity.",
            "gnnflow.stages.baselines:work",
            needs=(STORE,),
            version=3,
            keys=stage_keys.baselines,
            asked_for=stage_keys.compares,
            asked_by="train.baselines",
        ),
        Stage(
            "train",
            "Train the model; a run that was killed continues at its checkpoint.",
            "gnnflow.stages.train:work",
            needs=(STORE, "select", "flat"),
            version=5,
            keys=stage_keys.train,
            own_code=stage_keys.own_training_code,
            starts_from_model=True,
            may_differ=True,
        ),
        Stage(
            "infer",
            "Score nodes layer by layer and certify the scores (GraphInfer).",
            "gnnflow.stages.infer:work",
            needs=(STORE, "select", "train"),
            version=9,
            keys=stage_keys.infer,
            own_code=stage_keys.own_layers,
        ),
        Stage(
            "guards",
            "Stop where the tables differ too much from the last run's.",
            "gnnflow.stages.guards:check",
            needs=("ingest",),
            quick="gnnflow.stages.guards:is_quick",
        ),
        Stage(
            "run",
            "Run all stages: tables to predictions. Resumes where an earlier run stopped; repeats nothing done.",
            "gnnflow.stages.pipeline:run",
            needs=("infer",),
            quick="gnnflow.stages.pipeline:is_quick",
        ),
        Stage(
            "publish",
            "Make a completed run a version of its model, promoted where it is at least as good as the champion.",
            "gnnflow.stages.publish:run",
            needs=("infer",),
            quick="gnnflow.stages.publish:is_quick",
        ),
        Stage(
            "score",
            "Score the current graph with the model in service.",
            "gnnflow.stages.score:run",
            needs=(STORE,),
            quick="gnnflow.stages.score:is_quick",
        ),
        Stage(
            "recommend",
            "List the best of all items for each user, from the scores of a run that predicts links.",
            "gnnflow.stages.recommend:run",
            needs=("infer",),
        ),
    )
}


def stages_of(config: Config) -> tuple[str, ...]:
    """Return the stages of a config's run that leave artifacts, in order."""
    return tuple(name for name in pipeline_of(config.train).stages if STAGES[name].asked_for(config))


def run_chain(config: Config) -> tuple[str, ...]:
    """Return the stages of one run, which a scheduler makes tasks of; the completion is last."""
    return (*stages_of(config), "run")


def retraining_chain(config: Config) -> tuple[str, ...]:
    """Return the stages of a retraining run."""
    return with_publication(run_chain(config))


def with_publication(chain: Sequence[str]) -> tuple[str, ...]:
    """Return the stages of runs with guards right after the first, and publication and scoring at the end."""
    ingest, *rest = chain
    return (ingest, "guards", *rest, "publish", "score")


def every_stage() -> tuple[str, ...]:
    """Return every stage that some config's run has, in an order that all runs follow."""
    return tuple(dict.fromkeys(stage for row in PIPELINES.values() for stage in (*row.stages, "run")))


def needs_of(stage: str, stages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stages of a run whose artifacts a stage reads; `store` becomes the stage that wrote the store."""
    before = stages[: stages.index(stage)] if stage in stages else stages
    # The last one: the stage that partitions a store again writes the one that later stages read.
    writer = next((each for each in reversed(before) if STAGES[each].writes_store), STORE)
    named = (writer if need == STORE else need for need in STAGES[stage].needs)
    return tuple(dict.fromkeys(need for need in named if need in before))
