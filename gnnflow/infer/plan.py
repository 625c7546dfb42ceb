"""The rounds of GraphInfer in order: select, plan needs from the last layer back, then K + 1 slices forward."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.infer import need, rounds
from gnnflow.mapreduce.rounds import Round
from gnnflow.selection.rounds import run_rounds as select_edges

if TYPE_CHECKING:
    from gnnflow.infer.task import InferTask
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.storage.filesystem import FileEntry


@dataclass(frozen=True)
class InferResult:
    """What GraphInfer committed. parity maps sampled dense ids to the scores it gave them."""

    files: tuple[FileEntry, ...]
    num_targets: int
    parity: dict[int, list[float]]


def run_rounds(task: InferTask, runner: RoundRunner) -> InferResult:
    """Run GraphInfer over every partition."""
    parts, layers = task.selection.store.num_partitions, task.num_layers
    selected, _ = select_edges(task.selection, runner)
    sample = _plan_needs(task, runner, selected)
    encode = partial(rounds.encode, task=task)
    runner.run(Round("slice_0", parts, parts, encode, need.need_channels(task, 1)))
    for layer in range(1, layers + 1):
        reads = {**selected, **need.need_channels(task, layer)}
        reads |= {f"{kind}_{layer}": f"slice_{layer - 1}" for kind in ("own", "source")}
        function = partial(rounds.score, task=task, parity=sample)
        if layer < layers:
            reads |= need.need_channels(task, layer + 1)
            function = partial(rounds.compute, task=task, layer=layer)
        records = runner.run(Round(f"slice_{layer}", parts, parts, function, reads))
    return InferResult(
        files=tuple(entry for record in records for entry in record.files),
        num_targets=sum(record.counts["rows"] for record in records),
        parity={int(node): row for record in records for node, row in record.counts["parity"].items()},
    )


def _plan_needs(task: InferTask, runner: RoundRunner, selected: dict[str, str]) -> tuple[int, ...]:
    """Run the need rounds; return the dense ids the parity certificate samples."""
    parts, layers = task.selection.store.num_partitions, task.num_layers
    sample: list[list[int]] = []
    for layer in range(layers, 0, -1):
        if task.need_layer(layer) != layer:
            continue
        reads = {**selected, **(need.need_channels(task, layer + 1) if layer < layers else {})}
        plan = partial(need.plan_need, task=task, layer=layer)
        records = runner.run(Round(f"need_{layer}", parts, parts, plan, reads))
        if layer == layers:
            sample = [pair for record in records for pair in record.counts["sample"]]
    hashes = np.array([pair[0] for pair in sample], np.int64)
    first = np.argsort(hashes, kind="stable")[: task.parity_samples]
    return tuple(sample[number][1] for number in first)
