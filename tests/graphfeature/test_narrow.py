"""Shards hold features in fewer bytes as they are stored, and any protobuf reader can widen them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.batch import Features, NodeFeatures, TypedFeatures
from gnnflow.graph.errors import StorageError
from gnnflow.graph.narrow import KINDS, ColumnRanges, NarrowRows
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature.blocks import extract_rows
from gnnflow.graphfeature.decode import decode_rows
from gnnflow.graphfeature.encode import encode_rows
from gnnflow.graphfeature.graph_feature_pb2 import DenseKind, GraphFeature, TypeFeatures
from gnnflow.graphfeature.neighborhood import Neighborhood, merge, side_by_side
from tests.graphfeature.random_graphs import assert_same, graphs
from tests.graphfeature.random_typed import typed_graphs

kinds = st.sampled_from(KINDS[1:])


def narrowed(features: NodeFeatures, kind: str) -> NodeFeatures:
    if isinstance(features, TypedFeatures):
        return replace(features, parts=tuple(part and narrowed(part, kind) for part in features.parts))  # type: ignore[misc]
    if features.dense is None or not features.width:
        return features
    form = NarrowRows.of(kind, features.width, ColumnRanges((0.0,) * features.width, (1.0,) * features.width))  # type: ignore[arg-type]
    return Features(features.width, dense=form.encode(features.dense), narrow=form)


def numbers(message: GraphFeature | TypeFeatures) -> np.ndarray:
    """The numbers of dense features by the text of the .proto."""
    width, kind = message.feature_width, message.dense_kind
    if kind == DenseKind.FLOAT32:
        return np.frombuffer(message.dense, "<f4").reshape(-1, width)
    if kind == DenseKind.FLOAT16:
        return np.frombuffer(message.dense, "<f2").reshape(-1, width).astype(np.float32)
    if kind == DenseKind.BFLOAT16:
        return (np.frombuffer(message.dense, "<u2").astype("<u4") << 16).view("<f4").reshape(-1, width)
    codes = np.frombuffer(message.dense, "u1").reshape(-1, width if kind == DenseKind.INT8 else (width + 1) // 2)
    if kind == DenseKind.INT4:
        codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)[:, :width]
    return codes.astype(np.float32) * np.frombuffer(message.dense_step, "<f4") + np.frombuffer(message.dense_low, "<f4")


def same_features(found: NodeFeatures, expected: NodeFeatures, message: GraphFeature | TypeFeatures) -> bool:
    """Return whether the same rows were read, narrow or not, and the message says what they widen to."""
    if isinstance(found, TypedFeatures) and isinstance(expected, TypedFeatures):
        assert isinstance(message, GraphFeature)
        each = zip(found.parts, expected.parts, message.type_features, strict=True)
        return all((one is None and two is None) or same_features(one, two, of) for one, two, of in each)  # type: ignore[arg-type]
    assert isinstance(found, Features)
    assert isinstance(expected, Features)
    if expected.narrow is None:
        return found.narrow is None
    assert found.narrow is not None
    assert np.array_equal(numbers(message), expected.narrow.decode(expected.stored))
    return found.narrow.same_as(expected.narrow) and np.array_equal(found.stored, expected.stored)


@given(graphs() | typed_graphs(), kinds)
def test_narrow_rows_are_read_as_they_were_written(graph: Neighborhood, kind):
    narrow = replace(graph, features=narrowed(graph.features, kind))
    column = encode_rows(side_by_side([narrow]))
    message = GraphFeature.FromString(column[0].as_py())
    has_narrow = narrow.features is not graph.features and any(
        part is not None and part.narrow is not None
        for part in (narrow.features.parts if isinstance(narrow.features, TypedFeatures) else (narrow.features,))
    )
    assert message.format // 4 == has_narrow
    found = decode_rows(column).neighborhood
    assert same_features(found.features, narrow.features, message)
    assert_same(replace(found, features=graph.features), graph)
    # as another writer puts it
    again = encode_rows(side_by_side([found]))
    assert GraphFeature.FromString(again[0].as_py()) == message


@given(graphs(), kinds)
def test_each_inline_message_can_be_read_alone(graph: Neighborhood, kind):
    narrow = replace(graph, features=narrowed(graph.features, kind))
    hops = 1
    try:
        rows = extract_rows(narrow, narrow.roots, sampling=EVERY_EDGE, num_layers=hops)
    except AssertionError:  # the graph was cut to fewer hops
        return
    column = encode_rows(rows)
    merged = merge([decode_rows(column).neighborhood])
    places = np.searchsorted(graph.node_ids, merged.node_ids) if np.all(np.diff(graph.node_ids) > 0) else None
    if places is not None and isinstance(narrow.features, Features) and narrow.features.narrow is not None:
        assert isinstance(merged.features, Features)
        assert np.array_equal(merged.features.stored, narrow.features.take(places).stored)


def test_messages_of_other_kinds_or_ranges_are_refused():
    message = GraphFeature(
        format=5, feature_width=1, dense_kind=DenseKind.INT8, dense_low=bytes(4), dense_step=bytes(4)
    )
    other = GraphFeature()
    other.CopyFrom(message)
    other.dense_low = np.float32(1).tobytes()
    for broken, said in ((other, "another dense_low"), (GraphFeature(format=4), "not a GraphFeature")):
        with pytest.raises(StorageError, match=said):
            decode_rows(pa.array([message.SerializeToString(), broken.SerializeToString()]))
