"""Baselines: a graph store in, scores of simple predictions out; a separate stage, so that all models share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from gnnflow.config import EdgeTask, LinkTask
from gnnflow.config.stage_keys import baselines_of
from gnnflow.config.task_section import measured_class
from gnnflow.stages.base import Made
from gnnflow.stages.paired import TEST_SCORES
from gnnflow.storage.columns import from_matrix
from gnnflow.storage.filesystem import join
from gnnflow.storage.tables import write_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gnnflow.graph.arrays import Array
    from gnnflow.stages.base import StageRun
    from gnnflow.storage.writing import FileEntry


def work(run: StageRun) -> Made:
    """Score the baselines that the config asks for, on valid and test."""
    from gnnflow.train.baselines import edge_baselines, link_baselines, node_baselines

    config, store, kinds = run.config, run.store, baselines_of(run.config)
    facts, threads = store.facts, config.train.threads
    positive = measured_class(config.task, facts.label_kind, facts.every_class_name)
    if isinstance(config.task, LinkTask):
        found, outputs = link_baselines(store, config.task, kinds, seed=config.seed, tell=run.tell)
    elif isinstance(config.task, EdgeTask):
        found, outputs = edge_baselines(
            store, kinds, seed=config.seed, threads=threads, tell=run.tell, positive=positive
        )
    else:
        found, outputs = node_baselines(
            store, kinds, seed=config.seed, threads=threads, tell=run.tell, positive=positive
        )
    files = _write_test(run.folder, outputs)
    for kind, why in found.left_out.items():
        run.tell(f"baselines: {kind} is left out: {why}")
    scored = sum(found.scored.values())
    return Made(files, rows_in=found.train_rows + scored, rows_out=scored, facts=found)


def _write_test(folder: str, outputs: Mapping[str, Array]) -> tuple[FileEntry, ...]:
    """Write the outputs of the test targets, which a model's are compared with, where these have one label each."""
    if not outputs or ("label" in outputs and outputs["label"].ndim > 1):
        return ()
    columns = {name: from_matrix(each) if each.ndim > 1 else pa.array(each) for name, each in outputs.items()}
    return (write_table(join(folder, TEST_SCORES), pa.table(columns)),)
