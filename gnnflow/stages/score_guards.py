"""Guards of predictions: stop a scoring whose predictions differ too much from the scoring before.

Nobody reads such predictions: they appear in no place of the user's, and the next scoring is not compared with them.
The artifact stays, so a scoring with a raised limit computes nothing anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.graph.errors import GuardError
from gnnflow.graph.labels import lower_is_better

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.config import Config
    from gnnflow.stages.score_drift import ScoreDrift
    from gnnflow.stages.score_figures import Figures


def check_drift(config: Config, figures: Figures, drift: ScoreDrift | None, *, folder: str) -> None:
    """Raise GuardError if predictions differ from the ones before by more than the config allows, where it asks.

    drift: None where nothing was scored before, which passes.
    """
    if drift is None or "score" not in config.guards.commands:
        return
    breaches = [*_shifts(config.guards.scores, drift), *_losses(config.guards.metric, figures, drift)]
    if not breaches:
        return
    keys = " and ".join(dict.fromkeys(f"guards.{key}" for key, _ in breaches))
    raise GuardError(
        f"compared with {drift.against}: {'; '.join(text for _, text in breaches)}",
        where=folder,
        fix=f"Look at these predictions and at the tables. If the change is intended, raise {keys} for one scoring "
        "(null turns it off): the next one is compared with that.",
    )


def _shifts(limit: float | None, drift: ScoreDrift) -> Iterator[tuple[str, str]]:
    for name, (index, chance) in drift.indices.items():
        if limit is not None and index > limit + chance:
            yield "scores", f"{name}: PSI {index:.3g}, and {limit:.3g} is allowed"


def _losses(limit: float | None, figures: Figures, drift: ScoreDrift) -> Iterator[tuple[str, str]]:
    """Yield the breach of the headline metric. Where its noise is not known any change is taken for more than noise.

    A metric that cannot be compared, such as a mean over other classes than before, is no breach.
    """
    for change in drift.changes:
        if change.why_not:
            continue
        if limit is None or change.name != figures.headline or change.beyond_noise is False or not change.before:
            continue
        relative = (change.now - change.before) / abs(change.before)
        worse = relative if lower_is_better(change.name) else -relative
        if worse > limit:
            against = f" (compared with {drift.metrics_against})" if drift.metrics_against else ""
            yield "metric", f"{change.text}{against}: {relative:+.1%}, and {limit:.1%} is allowed"
