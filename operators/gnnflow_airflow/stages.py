"""One operator per stage, that is, per row of `gnnflow.config.stages`; the classes below name the usual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config import STAGES
from gnnflow_airflow.links import CurvesLink
from gnnflow_airflow.places import find_address
from gnnflow_airflow.stage import StageOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from gnnflow.config import Config


class IngestOperator(StageOperator):
    """Turn the tables into the graph store."""

    stage = "ingest"


class GuardsOperator(StageOperator):
    """Stop the run, with a readable reason, if the tables changed too much since the last run."""

    stage = "guards"


class SelectOperator(StageOperator):
    """Choose each node's neighbours once, for GraphFlat, GraphInfer and other runs."""

    stage = "select"


class GraphFlatOperator(StageOperator):
    """Cut the graph store into shards of k-hop neighbourhoods."""

    stage = "flat"


class TrainOperator(StageOperator):
    """Train the model; a run that was killed continues at its checkpoint."""

    stage = "train"
    operator_extra_links = (CurvesLink(), *StageOperator.operator_extra_links)

    def _begin(self, context: Context, config: Config) -> None:
        """Link to the learning curves, where their workspace has pages."""
        from gnnflow.graph.errors import GnnflowError
        from gnnflow.remote.driver import artifact_of
        from gnnflow.storage.filesystem import join

        if not find_address(join(config.workspace, "artifacts")):
            return
        try:
            self._link(context, CurvesLink.xcom_key, artifact_of(self.stage, config))
        except GnnflowError as error:
            self.log.info("cannot tell from here where the learning curves are: %s", error)


class InferOperator(StageOperator):
    """Score nodes layer by layer, and certify that training's path gives the same scores."""

    stage = "infer"


class CompleteRunOperator(StageOperator):
    """Commit the run: predictions under the user's ids, metrics and report in one folder."""

    stage = "run"


class PublishOperator(StageOperator):
    """Register the run's model, and promote it only if it is at least as good as the one in service."""

    stage = "publish"


class ScoreOperator(StageOperator):
    """Score the current graph with the model in service."""

    stage = "score"


class RecommendOperator(StageOperator):
    """List the best items of each user, with the options of the config's section `recommend`."""

    stage = "recommend"


_NAMED: dict[str, type[StageOperator]] = {operator.stage: operator for operator in StageOperator.__subclasses__()}


def operator_of(stage: str) -> type[StageOperator]:
    """Return a stage's operator: a class above, or one made from the row of the table."""
    if stage in _NAMED:
        return _NAMED[stage]
    row = STAGES[stage]
    return type(f"{stage.title().replace('_', '')}Operator", (StageOperator,), {"stage": stage, "__doc__": row.summary})
