"""What can be said against a config before its first stage runs, beyond what its keys alone show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config import STAGES
from gnnflow.graph.errors import LayerError
from gnnflow.storage.manifest import committed

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.stages.resolve import ResolvedRun


def check_run(run: ResolvedRun) -> None:
    """Raise the GnnflowError that a stage still to be done would raise for the config's own code, hours from now.

    Built-in layers run on every execution: the contract suite holds that. So torch is loaded for layers of one's own
    alone, and not at all where nothing is left to do.
    """
    missing = [stage for stage in run.stages if not committed(run.artifact(stage))]
    if any(STAGES[stage].own_code(run.config) for stage in missing):
        _check_own_layer(run.config)


def _check_own_layer(config: Config) -> None:
    """Raise LayerError where a class cannot be loaded, or an execution of the run cannot run its layers."""
    from gnnflow.executions.table import check_model, executions_of
    from gnnflow.layers.kinds import load_layer_class
    from gnnflow.layers.model import ModelInputs, build_model

    load_layer_class(config.model.kind)
    # The graph's own widths are not known before ingest; executions ask nothing of a layer that depends on them.
    width = config.model.hidden
    inputs = ModelInputs(feature_width=width, num_outputs=width, attribute_width=len(config.graph.edge_features))
    try:
        model = build_model(config.model, inputs)
    except LayerError:
        return  # it may need other widths than these: the train stage builds it with the graph's own, and then says why
    check_model(model, names=executions_of(config.train.strategy))
