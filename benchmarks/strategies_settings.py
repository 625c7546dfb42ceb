"""What each strategy trains with in `strategies.py`, graph by graph, and what that was chosen from.

On Cora and Citeseer all strategies have Kipf and Welling's rates and 200 epochs, whatever the number of updates. On the
other graphs mini-batch and cluster-batch have equal numbers of settings to choose from, all of about as many updates of
the weights, at a rate that falls to 0; the lowest validation loss keeps the weights. The highest validation accuracy
would keep a lucky epoch: a model that moves much from epoch to epoch has more of these, and a worse one on the test
split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

STRATEGIES = {
    "shards": "mini-batch, shards",
    "store": "mini-batch, store",
    "cluster": "cluster-batch",
    "global": "global-batch",
}
_EVERY_NEIGHBOUR = "neighbors={sampling: {kind: none}}"
_DECAY = 5e-4


@dataclass(frozen=True)
class Mini:
    """Mini-batch. every_neighbour: whether the sample of the graph's config is left out."""

    batch_size: int
    epochs: int
    lr: float = 0.01
    every_neighbour: bool = False
    decay: float = _DECAY

    strategy = "store"

    def overrides(self, keys: str, source: str) -> list[str]:
        """Return what the config changes by."""
        own = f"batch_size: {self.batch_size}, eval_batch_size: 1000, epochs: {self.epochs}, {_rates(self)}"
        train = f"train={{strategy: mini-batch, source: {source}, {own}, {keys}}}"
        return [train, *([_EVERY_NEIGHBOUR] if self.every_neighbour else [])]

    def __str__(self) -> str:
        """Return it as a cell of a table."""
        sample = ", every neighbour" if self.every_neighbour else ""
        return f"mini-batch of {self.batch_size}{sample}, {_rates(self)}, {self.epochs} epochs"


@dataclass(frozen=True)
class Clusters:
    """Cluster-batch: how many of how many clusters are a batch, and how many batches an update of the weights."""

    per_batch: int
    clusters: int
    boundary_hops: int
    epochs: int
    lr: float = 0.01
    accumulate: int = 1
    decay: float = _DECAY
    kind: str = "metis"

    strategy = "cluster"

    def overrides(self, keys: str) -> list[str]:
        """Return what the config changes by."""
        own = (
            f"clusters_per_batch: {self.per_batch}, boundary_hops: {self.boundary_hops}, accumulate: {self.accumulate}"
        )
        train = f"train={{strategy: cluster-batch, {own}, epochs: {self.epochs}, {_rates(self)}, {keys}}}"
        return [train, f"partition={{kind: {self.kind}, clusters: {self.clusters}}}", _EVERY_NEIGHBOUR]

    def __str__(self) -> str:
        """Return it as a cell of a table."""
        batch = f"{self.per_batch} of {self.clusters} {self.kind} clusters, {self.boundary_hops} hops"
        update = f", {self.accumulate} batches an update" if self.accumulate > 1 else ""
        return f"{batch}{update}, {_rates(self)}, {self.epochs} epochs"


def _rates(setting: Mini | Clusters) -> str:
    return f"lr: {setting.lr}, weight_decay: {setting.decay}"


@dataclass(frozen=True)
class Graph:
    """A graph: how each strategy trains on it, what picks the weights, and the other keys that all have.

    alike: cluster-batch with the targets per update, the updates and the rates of `mini`.
    """

    mini: Mini
    cluster: Clusters
    epochs: int
    metric: str = "accuracy"
    schedule: str = "constant"
    alike: tuple[Clusters, ...] = ()


def overrides(graph: Graph, strategy: str, setting: Mini | Clusters | None = None) -> list[str]:
    """Return what a strategy changes in the graph's config, with its chosen setting or another."""
    keys = f"metric: {graph.metric}, schedule: {{kind: {graph.schedule}}}"
    if strategy == "global":
        train = f"train={{strategy: global-batch, epochs: {graph.epochs}, lr: 0.01, weight_decay: {_DECAY}, {keys}}}"
        return [train, "partition={kind: metis}", _EVERY_NEIGHBOUR]
    setting = setting or (graph.cluster if strategy == "cluster" else graph.mini)
    return setting.overrides(keys, strategy) if isinstance(setting, Mini) else setting.overrides(keys)


CHOICES: Mapping[str, list[Mini | Clusters]] = {
    # 160 targets, 200 updates
    "amazon_photo": [
        *(Mini(size, 200 * size // 160, lr) for size, lr in product((160, 80, 40), (0.005, 0.01, 0.02))),
        *(Mini(size, 200 * size // 160, lr, decay=1e-3) for size, lr in product((160, 80, 40), (0.01, 0.02))),
        *(Clusters(8, 16, hops, 100, lr) for hops, lr in product((0, 1), (0.01, 0.02))),
        *(Clusters(8, 16, 1, 200, lr, accumulate=2) for lr in (0.005, 0.01, 0.02)),
        # two batches an epoch: 63 of 64 and 108 of 128 clusters have targets
        *(Clusters(number * 3 // 8, number, 1, 100) for number in (64, 128)),
        *(Clusters(number * 3 // 8, number, 1, 200, accumulate=2) for number in (64, 128)),
        Clusters(8, 16, 1, 200, accumulate=2, kind="louvain"),
        Clusters(8, 16, 2, 200, accumulate=2),
        *(Clusters(8, 16, hops, 200, accumulate=2, decay=1e-3) for hops in (1, 2)),
    ],
    # 11,235 targets, 319 to 330 updates
    "facebook_pages": [
        *(Mini(512, 15, lr, every) for every, lr in product((False, True), (0.01, 0.02))),
        *(Mini(1024, 29, lr, every_neighbour=True) for lr in (0.01, 0.02)),
        *(Clusters(4, 64, hops, 20, lr) for hops, lr in product((0, 1, 2), (0.01, 0.02))),
    ],
}
"""As many settings of mini-batch as of cluster-batch. The lowest validation loss is chosen, as it is what keeps the
weights."""

GRAPHS = {
    "cora": Graph(Mini(140, 200), Clusters(4, 16, 1, 200), 200),
    "citeseer": Graph(Mini(120, 200), Clusters(4, 16, 1, 200), 200),
    "amazon_photo": Graph(
        Mini(160, 200, decay=1e-3),
        Clusters(48, 128, 1, 200, accumulate=2),
        200,
        "loss",
        "cosine",
        alike=tuple(Clusters(8, 16, hops, 200, accumulate=2, decay=1e-3) for hops in (2, 1)),
    ),
    "facebook_pages": Graph(
        Mini(1024, 29, 0.02, every_neighbour=True), Clusters(4, 64, 2, 20, 0.02), 320, "loss", "cosine"
    ),
}
