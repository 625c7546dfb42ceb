"""Today's tables as a published version reads them: with columns scaled as they were when it was trained.

Where that is how the run scales them anyway (the same figures, or none) nothing is made.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gnnflow.config import STAGES
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.scales import SCALING_KEYS, agree
from gnnflow.registry.versions import CONFIG
from gnnflow.stages.running import make_artifact
from gnnflow.storage.manifest import committed

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.registry import Version
    from gnnflow.stages.base import StageContext


def scaled_for(context: StageContext, version: Version) -> Config:
    """Return a run's config with tables read as they were for a version, which is scored and not trained.

    Raises StorageError where the run has no graph store yet.
    """
    today = context.artifact(context.run.store_stage).facts(GraphFacts).scales
    graph, held = context.config.graph, json.loads(version.read(CONFIG))["graph"]
    scaling = {key: held.get(key, "none") for key in SCALING_KEYS}
    # a model of edges both ways is one of other neighbours
    turned = {"reverse_edges": held.get("reverse_edges", False)}
    named = graph.scaled_as if "standard" in scaling.values() else None
    if version.scales and not agree(version.scales, today):
        named = version.pinned
    sections = {
        "graph": graph.model_copy(update={**scaling, **turned, "scaled_as": named}),
        # where training began changes no score, and may be gone
        "train": context.config.train.model_copy(update={"start": None}),
    }
    return context.config.model_copy(update=sections)


def make_inputs(context: StageContext, version: Version, *, shards: bool = False) -> None:
    """Make what a version's scores are computed from where it is not there: the graph store, neighbours, also shards.

    context: of a run of a `scaled_for` config.
    """
    if context.run.scales and not _has_store(context):
        context.progress.message(
            f"the columns of version {version.version} were scaled by other figures than these tables': they are "
            f"ingested once more by those. With graph.scaled_as: {version.name} runs scale by them from the start."
        )
    make_store(context)
    for stage in ("select", "flat") if shards and "flat" in context.run.stages else ("select",):
        make_artifact(context, stage)


def make_store(context: StageContext) -> None:
    """Make a run's graph store where it is not there."""
    if not _has_store(context):
        for stage in (each for each in context.run.stages if STAGES[each].writes_store):
            make_artifact(context, stage)


def _has_store(context: StageContext) -> bool:
    return committed(context.run.artifact(context.run.store_stage))
