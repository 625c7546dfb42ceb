"""Messages about links before they are trained on: the candidates of held-out ones, and nodes that tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config import LinkTask
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.run_facts import HIDE_EVENTS, LinkFacts
from gnnflow.neighbors.event_paths import events_that_tell
from gnnflow.neighbors.link_candidates import known_links, sample_links, share_of_edges
from gnnflow.neighbors.pairs import num_candidates

if TYPE_CHECKING:
    from gnnflow.stages.base import StageRun

_ALL = 1 - 1e-9


def link_facts(run: StageRun) -> LinkFacts | None:
    """Say what held-out links are ranked among and what tells of them; return None where links are not the task.

    Raises TrainingError where all of these are edges.
    """
    task, store = run.config.task, run.store
    if not isinstance(task, LinkTask):
        return None
    links = sample_links(store)
    share = share_of_edges(store, links, task, known=known_links(store, links.sources))
    drawn, filtered = task.negatives.evaluation, task.negatives.filtered
    events = events_that_tell(store, links, seed=run.config.seed)
    found = LinkFacts(links.split, len(links.sources), drawn, num_candidates(store.facts), share, filtered, events)
    if len(links.sources) and share > _ALL:
        raise TrainingError(
            f"every pair that a {links.split} edge can be ranked among is an edge itself: each source has edges to all "
            "nodes that are drawn",
            where="task.negatives",
            fix="Nothing tells edges from other pairs here. Learn a label or a number of the edges: task.kind edge.",
        )
    run.context.progress.message(f"candidates: {found.text}")
    if found.events_text:
        run.context.progress.message(f"{found.events_text}. {HIDE_EVENTS}")
    return found
