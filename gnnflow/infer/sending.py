"""Sends a slice's results to the next layer: source terms to the partitions that asked, and its targets' rows.

Large sends go in runs of the rows that the task computed, one file each, so that a run is written while the next one
is computed. Where the runs end depends on counts alone. Partial states need every row first, so where a partition takes
states all rows are one run.

Shapes: N rows computed here, n of a run, K packed width of source terms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.executions.sliced import kept_terms, term_slice
from gnnflow.graph.arrays import distinct
from gnnflow.infer import hub_edges, hubs
from gnnflow.infer.need import Sends, rows_among, rows_of_layer, sends_of
from gnnflow.infer.relation_task import PackedRows, RelationTask
from gnnflow.infer.row_form import rounded
from gnnflow.infer.target_states import send_targets
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.mapped import Kept
from gnnflow.storage.columns import from_matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gnnflow.executions.plan import TermArrays
    from gnnflow.executions.sliced import SliceTerms
    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.graph.batch import Degrees
    from gnnflow.infer.job import InferJob
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox

_MOST_RUNS = 4
_LEAST_PIECE_BYTES = 1 << 20
"""What a run sends to one partition is no smaller on average: it would be requests that take the time, not bytes."""


@dataclass(frozen=True)
class Sending:
    """Sends local rows of a partition, ascending [N], to layer `layer`, in runs of them.

    needed: the rows among the N that the layer computes here. hub_sources: by relation those that split edges of hubs
    come from.
    """

    index: int
    job: InferJob
    layer: int
    rows: IntArray
    needed: IntArray
    sends: tuple[Sends, ...]
    hub_sources: tuple[IntArray, ...]

    @classmethod
    def of(cls, index: int, inbox: Inbox, job: InferJob, *, layer: int, rows: IntArray | None = None) -> Sending:
        """Read who asked for what. rows: that were computed; without them all that the layer reads of the partition."""
        own, sends = rows_of_layer(index, inbox, job, layer), sends_of(index, inbox, job, layer)
        relations = range(job.neighbors.store.schema.num_relations)
        of_hubs = tuple(hub_edges.sources_here(inbox, job, layer, relation) for relation in relations)
        if rows is None:
            rows = rows_among([own, *(each.rows for each in sends), *of_hubs], job.neighbors.store.book.size(index))
        return cls(index, job, layer, rows, np.searchsorted(rows, own), sends, of_hubs)

    @property
    def runs(self) -> list[slice]:
        """The runs of the N rows that are sent one by one."""
        number, store = 1, self.job.neighbors.store
        if self.job.keeps_terms and not self.job.exchange.askers.get(self.job.need_layer(self.layer)):
            sent = len(self.sends[0].rows) * self.job.exchange.layers[self.layer - 1][0].row
            number = min(max(sent // (store.num_partitions * _LEAST_PIECE_BYTES), 1), _MOST_RUNS)
        bounds = np.linspace(0, len(self.rows), number + 1).astype(int).tolist()
        return [slice(*ends) for ends in pairwise(bounds)]

    def emits(
        self, model: Model, inbox: Inbox, computed: Iterator[FloatArray], carried: dict[int, FloatArray]
    ) -> Iterator[Emit | Kept]:
        """Yield what is sent, or kept, of each run. computed: the layer's input rows of each run [n, W].

        carried: outputs of the layers before the one that gave these, of all N rows.
        """
        degrees = self.job.neighbors.store.degrees(self.index)
        numbers = carried_layers(model, self.layer, self.job)
        for run, h in zip(self.runs, computed, strict=True):
            rows, nodes = self.rows[run], degrees.take(self.rows[run])
            # places among the n rows of those that the layer computes here
            kept = self.needed[slice(*np.searchsorted(self.needed, [run.start, run.stop]))] - run.start
            own: dict[str, Array] = {} if self.job.keeps_terms else {"h": h[kept]}
            for relation, sends in enumerate(self.sends):
                task = RelationTask(self.index, inbox, self.job, model, self.layer, relation)
                terms_of = self._terms(task, rows, h, nodes)
                of_hubs = self.hub_sources[relation]
                asked = rows if self.job.keeps_terms else distinct(np.concatenate([sends.rows, of_hubs]))
                terms = terms_of(asked)
                yield from hubs.send_targets(task, rows, terms_of)
                stays = kept_terms(model, self.layer - 1) if self.job.keeps_terms else None
                if self.job.mapped:
                    yield self._kept(task.channel("source"), terms.source, asked)
                    of_kept = slice(None) if len(kept) == len(rows) else kept
                    of_targets = {} if stays is None else stays.of(terms.target)
                    own |= {f"target_{name}": each[of_kept] for name, each in of_targets.items()}
                    continue
                # the terms side by side in one row for each row asked for [n, K]
                packed = task.plan.source.pack(terms.source)
                yield from task.send_sources(PackedRows(asked, packed), sends.among(rows))
                yield from send_targets(task, terms_of)
                yield from hubs.keep_sources(task, of_hubs, asked, packed)
                if stays is not None:
                    own["source"] = packed[kept]
                    if stays.layout.names:
                        own["target"] = stays.layout.pack(stays.of(terms.target))[kept]
            outputs = {**{number: rows[run] for number, rows in carried.items()}, self.layer - 2: h}
            own |= {f"output_{number}": outputs[number][kept] for number in numbers}
            yield self._own(own, len(kept))

    def _kept(self, channel: str, terms: TermArrays, rows: IntArray) -> Kept:
        """Return terms of local rows, ascending, on their way to an array of all nodes; rows between them are zero."""
        book = self.job.neighbors.store.book
        first, last = (int(rows[0]), int(rows[-1])) if len(rows) else (0, -1)
        if last - first + 1 > len(rows):
            spread = {name: np.zeros((last - first + 1, *each.shape[1:]), each.dtype) for name, each in terms.items()}
            for name, each in terms.items():
                spread[name][rows - first] = each
            terms = spread
        return Kept(channel, terms, book.num_nodes, book.start(self.index) + first)

    def _own(self, rows: dict[str, Array], number: int) -> Emit | Kept:
        """Return a run of what stays here, a number of rows of it."""
        channel = f"own_{self.layer}"
        if self.job.mapped:
            return Kept(channel, rows, len(self.needed))
        columns = {name: from_matrix(each) for name, each in rows.items()}
        return Emit(channel, pa.table(columns), np.full(number, self.index))

    def _terms(
        self, task: RelationTask, rows: IntArray, h: FloatArray, nodes: Degrees
    ) -> Callable[[IntArray], SliceTerms]:
        """Return a function that gives a relation's terms of rows: computed for all at once, where they are kept."""

        def terms_at(places: IntArray | slice) -> SliceTerms:
            terms = term_slice(task.model, self.layer - 1, task.relation, h=h[places], nodes=nodes.take(places))
            return self._rounded(terms, task.model)

        if not self.job.keeps_terms:
            return lambda wanted: terms_at(np.searchsorted(rows, wanted))
        terms = terms_at(slice(None))
        return lambda wanted: terms if wanted is rows else terms.take(np.searchsorted(rows, wanted))

    def _rounded(self, terms: SliceTerms, model: Model) -> SliceTerms:
        """Return terms whose source terms have the numbers that travel.

        Targets that keep their terms keep one array where a target term has the rows of a source term.
        """
        if self.job.rows == "float32":
            return terms
        source = {name: rounded(each, self.job.rows) for name, each in terms.source.items()}
        if not self.job.keeps_terms:
            return replace(terms, source=source)
        stays = kept_terms(model, self.layer - 1)
        return stays.whole(source, stays.of(terms.target))


def carried_layers(model: Model, layer: int, job: InferJob) -> list[int]:
    """Return which layers' outputs (from 0), computed before layer `layer` (from 1), the end still needs."""
    wanted = set(model.head_layers) | (set(model.embedding_layers) if job.embeddings else set())
    return sorted(number for number in wanted if number < layer - 1)
