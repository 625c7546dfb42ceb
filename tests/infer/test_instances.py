"""GraphInfer over a selection of instances: all their leaves are asked for, and it equals the plain definition."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gnnflow.config import model_from_dict
from gnnflow.infer.job import InferJob
from gnnflow.infer.need import plan_need
from gnnflow.infer.states import layer_bytes
from gnnflow.layers import ModelInputs, TypedInputs, build_model
from gnnflow.layers.saved import encode_weights, save_model
from gnnflow.mapreduce.exchange import Inbox
from gnnflow.neighbors.selected import Neighbors
from gnnflow.storage.columns import to_numpy
from tests.instance_stores import KINDS, Selection, instance_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.instance_stores import Kind

TOLERANCE = 1e-5
MODELS: dict[str, dict[str, Any]] = {
    "sage": {"kind": "sage"},
    "gcn": {"kind": "gcn"},
    "gat": {"kind": "gat", "heads": 2},
    "gat_e": {"kind": "gat_e", "heads": 2},
}


def prepare(folder: Path, selection: Selection, model: dict[str, Any], *, parity_samples: int = 0) -> InferJob:
    """Return the job that scores the accounts of a graph with a selection."""
    facts = selection.store.facts
    config = model_from_dict({"hidden": 6, "layers": 2, **model})
    typed = TypedInputs.of(facts.schema, facts.features_of_types) if facts.schema.is_typed else None
    width = facts.features.width
    inputs = ModelInputs(feature_width=width, num_outputs=2, attribute_width=facts.attribute_width, typed=typed)
    torch.manual_seed(1)
    save_model(str(folder / "model"), config, inputs, weights=encode_weights(build_model(config, inputs).state_dict()))
    job = InferJob(
        artifact=str(folder / "artifact"),
        neighbors=Neighbors(selection.store),
        model=str(folder / "model"),
        num_layers=config.layers,
        label_kind="single",
        targets="all",
        embeddings=False,
        parity_samples=parity_samples,
        seed=5,
    )
    sends = layer_bytes(job.load_model(), leaves=facts.leaves_of_relations, columns=job.edge_columns)
    return replace(job, exchange=replace(job.exchange, layers=sends))


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_all_leaves_of_instances_are_asked_for(tmp_path: Path, kind: Kind, partitions: int) -> None:
    selection = instance_store(tmp_path, kind, 7, partitions=partitions)
    job = prepare(tmp_path, selection, MODELS["sage"])
    book = selection.store.book
    for partition in range(partitions):
        asked, rows = plan_need(partition, Inbox(str(tmp_path), partition, {}), job=job, layer=2).emits[:2]
        roots = {book.start(partition) + row for row in to_numpy(rows.rows["row"]).tolist()}
        own = [(relation, root, of) for (relation, root), of in selection.instances.items() if root in roots]
        read = {(relation, leaf, root) for relation, root, of in own for each in of for leaf in each.leaves}
        if selection.store.schema.is_typed:
            # a leaf that is a root here, of whatever instance, is at hand
            wanted = {(relation, leaf) for relation, leaf, _ in read if leaf not in roots}
            pairs = zip(to_numpy(asked.rows["relation"]).tolist(), to_numpy(asked.rows["node"]).tolist(), strict=True)
            assert list(pairs) == sorted(wanted)
        else:
            leaves = {leaf for _, leaf, _ in read}
            found = to_numpy(asked.rows["node"]).tolist()
            assert found == sorted(found)
            assert leaves - roots <= set(found) <= leaves
        assert asked.destination.tolist() == book.owner(to_numpy(asked.rows["node"])).tolist()
