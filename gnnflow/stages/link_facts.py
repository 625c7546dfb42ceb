"""Facts about held-out links before training: their candidates, and event nodes that reveal them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gnnflow.config import LinkTask
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import FlatFacts
from gnnflow.graph.run_facts import HIDE_EVENTS, LinkFacts
from gnnflow.neighbors.event_paths import revealing_events
from gnnflow.neighbors.link_candidates import known_links, sample_links, share_of_edges
from gnnflow.neighbors.pairs import num_candidates

if TYPE_CHECKING:
    from gnnflow.stages.base import StageRun

_ALL = 1 - 1e-9


def find_link_facts(run: StageRun) -> LinkFacts | None:
    """Return the candidates of held-out links and the events that reveal them; None if no links are held out.

    Reads all pairs of the store, in this process. Raises TrainingError if all candidates are edges.
    """
    task, store = run.config.task, run.store
    if not isinstance(task, LinkTask) or task.split.kind == "none":
        return None
    links = sample_links(store)
    share = share_of_edges(store, links, task, known=known_links(store, links.sources))
    if len(links.sources) and share > _ALL:
        raise TrainingError(
            f"every pair that a {links.split} edge can be ranked among is an edge itself: each source has edges to all "
            "candidate nodes",
            where="task.negatives",
            fix="There are no other pairs to learn from. Learn a label or a number of the edges: task.kind edge.",
        )
    drawn, filtered = task.negatives.evaluation, task.negatives.filtered
    events = revealing_events(store, links, seed=run.config.seed)
    return LinkFacts(links.split, len(links.sources), drawn, num_candidates(store.facts), share, filtered, events)


def tell_link_facts(run: StageRun) -> LinkFacts | None:
    """Report and return the link facts; those that GraphFlat found are not computed again."""
    task, found = run.config.task, None
    if "flat" in run.inputs:
        found = run.facts("flat", FlatFacts).link_facts
    found = found or find_link_facts(run)
    if found is None or not isinstance(task, LinkTask):
        return None
    # shards do not depend on the number of candidates, so the config may have changed it since
    found = replace(found, candidates=task.negatives.evaluation, filtered=task.negatives.filtered)
    run.tell(f"candidates: {found.text}")
    if found.events_text:
        run.tell(f"{found.events_text}. {HIDE_EVENTS}")
    return found
