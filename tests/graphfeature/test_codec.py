from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.batch import Degrees, Features, TypedFeatures
from gnnflow.graph.edges import InEdges
from gnnflow.graph.errors import StorageError
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature import graph_feature_pb2
from gnnflow.graphfeature.blocks import extract_rows
from gnnflow.graphfeature.decode import decode_references, decode_rows
from gnnflow.graphfeature.encode import encode_references, encode_rows
from gnnflow.graphfeature.graph_feature_pb2 import GraphFeature, TypeFeatures
from gnnflow.graphfeature.neighborhood import Neighborhood, NeighborhoodRows, side_by_side
from tests.graphfeature.random_graphs import assert_same, graphs
from tests.graphfeature.random_instances import instance_graphs, sources_of
from tests.graphfeature.random_typed import typed_graphs

GOLDEN = "b1a55eb6a9e40919ce28534f9d112290bfec92410f368c6d191ef41daba523e4"
TYPED_GOLDEN = "8339350d3a5fb0c4c8d2aceaeecdaa3e51d64f006078ca21f57483d7c41ea684"
LEAVES_GOLDEN = "a6b4a3cdadc223e1fe7958fbfd647debd2fce6cae2121d017727c2ac04f0976f"
REPOSITORY = Path(__file__).resolve().parents[2]


def rows_of(graph: Neighborhood) -> NeighborhoodRows:
    return extract_rows(graph, graph.roots, sampling=EVERY_EDGE, num_layers=2)


def encode(graph: Neighborhood) -> bytes:
    message: bytes = encode_rows(side_by_side([graph]))[0].as_py()
    return message


def decode(message: bytes) -> Neighborhood:
    return decode_rows(pa.array([message], pa.large_binary())).neighborhood


def triangle() -> Neighborhood:
    return Neighborhood(
        roots=np.array([2, 0]),
        node_ids=np.array([7, 300, 2**40]),
        degrees=Degrees(np.array([1, 1, 2]), np.array([2, 1, 1]), np.array([1, 0.5, 2], np.float32)),
        features=Features(2, dense=np.arange(6, dtype=np.float32).reshape(3, 2)),
        edges=InEdges(
            offsets=np.array([0, 1, 2, 4]),
            sources=np.array([2, 0, 1, 0], np.int32),
            weight=np.array([1, 0.5, 1.5, 0.5], np.float32),
            attributes=np.arange(4, dtype=np.float32).reshape(4, 1),
        ),
    )


@given(graphs(min_nodes=0) | graphs(arrives=True) | typed_graphs(min_nodes=0) | typed_graphs(arrives=True))
def test_a_neighbourhood_comes_back(graph: Neighborhood):
    assert_same(decode(encode(graph)), graph)


@given(instance_graphs(min_nodes=0))
def test_a_neighbourhood_with_leaves_comes_back(graph: Neighborhood):
    assert_same(decode(encode(graph)), graph)


@given(graphs() | graphs(arrives=True) | typed_graphs() | typed_graphs(arrives=True) | instance_graphs())
def test_rows_come_back_from_any_kind_of_column(graph: Neighborhood):
    rows = rows_of(graph)
    column = encode_rows(rows)
    assert_same(decode_rows(column), rows)
    assert_same(decode_rows(column.cast(pa.binary())), rows)
    assert_same(decode_rows(pa.chunked_array([column[:1], column[1:1], column[1:]])), rows)
    assert_same(decode_rows(pa.concat_arrays([column, column])[len(rows) :]), rows)


@given(graphs() | graphs(arrives=True) | typed_graphs() | typed_graphs(arrives=True) | instance_graphs())
def test_each_row_is_its_own_message(graph: Neighborhood):
    for target, message in zip(graph.roots, encode_rows(rows_of(graph)), strict=True):
        alone = extract_rows(graph, np.array([target]), sampling=EVERY_EDGE, num_layers=2).neighborhood
        assert_same(decode(message.as_py()), alone)


def test_no_rows():
    column = encode_rows(extract_rows(triangle(), np.zeros(0, np.int64), sampling=EVERY_EDGE, num_layers=1))
    assert len(column) == 0
    assert len(decode_rows(column)) == 0


@given(graphs() | graphs(arrives=True))
def test_messages_are_protobuf(graph: Neighborhood):
    rows = rows_of(graph)
    union, edges = rows.neighborhood, rows.edge_offsets
    for i, content in enumerate(encode_rows(rows).to_pylist()):
        message = GraphFeature.FromString(content)
        start, stop = rows.node_offsets[i : i + 2]
        node, edge = slice(start, stop), slice(edges[i], edges[i + 1])
        assert message.format == 1
        assert np.frombuffer(message.roots, "<i4").tolist() == [union.roots[i] - start]
        assert np.frombuffer(message.node_ids, "<i8").tolist() == union.node_ids[node].tolist()
        assert np.frombuffer(message.in_degree, "<u4").tolist() == union.degrees.in_degree[node].tolist()
        assert np.frombuffer(message.out_degree, "<u4").tolist() == union.degrees.out_degree[node].tolist()
        assert message.in_weight == union.degrees.in_weight[node].tobytes()
        assert np.frombuffer(message.in_edges, "<u4").tolist() == union.edges.lengths[node].tolist()
        assert np.frombuffer(message.sources, "<i4").tolist() == (union.edges.sources[edge] - start).tolist()
        assert message.HasField("edge_weight") == (union.edges.weight is not None)
        assert union.edges.weight is None or message.edge_weight == union.edges.weight[edge].tobytes()
        assert message.HasField("edge_attributes") == (union.edges.attributes is not None)
        assert union.edges.attributes is None or message.edge_attributes == union.edges.attributes[edge].tobytes()
        assert message.HasField("edge_next_arrival") == (union.edges.next_arrival is not None)
        assert union.edges.next_arrival is None or message.edge_next_arrival == union.edges.next_arrival[edge].tobytes()
        assert_features(message, union.features.take(np.arange(start, stop)))


def assert_features(message: GraphFeature | TypeFeatures, features: Features) -> None:
    assert message.feature_width == features.width
    assert message.HasField("dense") != features.is_sparse
    assert message.HasField("feature_value") == (features.value is not None)
    if features.dense is not None:
        assert message.dense == features.dense.tobytes()
        return
    assert features.offsets is not None
    assert np.frombuffer(message.feature_count, "<u4").tolist() == np.diff(features.offsets).tolist()
    assert np.frombuffer(message.feature_index, "<i4").tolist() == features.index.tolist()
    assert features.value is None or message.feature_value == features.value.tobytes()


@given(graphs(min_nodes=0) | typed_graphs(min_nodes=0) | instance_graphs(min_nodes=0))
def test_another_writers_protobuf_is_read(graph: Neighborhood):
    """Other writers leave out empty fields, add fields of their own and choose their own order."""
    message = GraphFeature.FromString(encode(graph))
    assert_same(decode(message.SerializeToString()), graph)
    first = GraphFeature(format=message.format).SerializeToString()
    message.ClearField("format")
    unknown = b"\xd2\x0f\x03abc"  # field 250
    assert_same(decode(first + unknown + message.SerializeToString()), graph)


@given(graphs() | typed_graphs() | instance_graphs(), st.data())
def test_truncated_bytes_are_refused(graph: Neighborhood, data: st.DataObject):
    content = encode(graph)
    end = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(StorageError, match=r"GraphFeature 0 of the column .*Delete the artifact"):
        decode(content[:end])


@given(st.binary(min_size=1, max_size=40))
def test_foreign_bytes_are_refused(content: bytes):
    for read in (decode, lambda content: decode_references(pa.array([content]))):
        try:
            read(content)
        except StorageError as error:
            assert "GraphFeature 0" in str(error)  # noqa: PT017 - what is not refused is read, and both are fine


@given(graphs() | typed_graphs() | instance_graphs(), st.data())
def test_damage_never_shows_as_another_error(graph: Neighborhood, data: st.DataObject):
    content = bytearray(encode(graph))
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        decoded = decode(bytes(content))
    except StorageError:
        return
    assert decoded.edges.sources.min(initial=0) >= 0
    assert decoded.edges.sources.max(initial=-1) < decoded.num_nodes
    assert decoded.edges.offsets[-1] == decoded.num_edges
    assert decoded.edges.leaf_counts.sum() == len(decoded.edges.sources)
    assert decoded.edges.leaf_counts.min(initial=0) >= 0
    assert decoded.edges.num_targets == decoded.num_nodes == len(decoded.features) == len(decoded.degrees)


def test_errors_name_the_row_and_the_reason():
    good = encode(triangle())
    message = GraphFeature.FromString(good)
    message.format = 8
    with pytest.raises(StorageError, match=r"GraphFeature 1 .* has format 8, this version reads formats up to 7"):
        decode_rows(pa.array([good, message.SerializeToString()]))
    with pytest.raises(StorageError, match=r"GraphFeature 2 .* is truncated"):
        decode_rows(pa.array([good, good, good[:-1]]))
    with pytest.raises(StorageError, match=r"GraphFeature 0 .* is (not a GraphFeature|truncated)"):
        decode_rows(pa.array([b"PAR1 and more bytes"]))
    with pytest.raises(StorageError, match="1 of 2 GraphFeatures are null"):
        decode_rows(pa.array([good, None]))
    message = GraphFeature.FromString(good)
    message.sources = np.array([2, 0, 3, 0], "<i4").tobytes()
    with pytest.raises(StorageError, match=r"GraphFeature 1 .* sources points outside"):
        decode_rows(pa.array([good, message.SerializeToString()]))
    with pytest.raises(StorageError, match="only refers to its shard's graph"):
        decode_rows(encode_references(np.array([3])))


def test_what_32_bits_cannot_hold_is_refused():
    graph = triangle()
    graph.degrees.in_degree[1] = 2**32
    with pytest.raises(StorageError, match="in_degree reaches 4,294,967,296"):
        encode(graph)


@given(st.lists(st.integers(0, 2**31 - 1), max_size=20))
def test_references_come_back(roots: list[int]):
    column = encode_references(np.array(roots, np.int64))
    assert decode_references(column).tolist() == roots
    messages = [GraphFeature.FromString(content) for content in column.to_pylist()]
    assert [np.frombuffer(message.roots, "<i4").tolist() for message in messages] == [[root] for root in roots]


def test_a_whole_neighbourhood_is_no_reference():
    with pytest.raises(StorageError, match="a whole neighbourhood, not a reference"):
        decode_references(pa.array([encode(triangle())]))


@given(typed_graphs())
def test_typed_messages_are_protobuf(graph: Neighborhood):
    rows = rows_of(graph)
    union, types = rows.neighborhood, rows.neighborhood.degrees.types
    assert isinstance(union.features, TypedFeatures)
    assert types is not None
    for i, content in enumerate(encode_rows(rows).to_pylist()):
        message = GraphFeature.FromString(content)
        start, stop = rows.node_offsets[i : i + 2]
        own = np.arange(start, stop)
        assert (message.format, message.num_relations) == (2, 4)
        assert np.frombuffer(message.node_types, "<u2").tolist() == types[start:stop].tolist()
        assert message.in_weight == union.degrees.in_weight[start:stop].tobytes()
        assert np.frombuffer(message.in_degree, "<u4").tolist() == union.degrees.in_degree[start:stop].ravel().tolist()
        relations = [union.edges.relation(number) for number in range(4)]
        edges = [slice(*each.offsets[[start, stop]]) for each in relations]
        lengths = np.concatenate([each.lengths[start:stop] for each in relations])
        sources = np.concatenate([each.sources[edge] for each, edge in zip(relations, edges, strict=True)])
        assert np.frombuffer(message.in_edges, "<u4").tolist() == lengths.tolist()
        assert np.frombuffer(message.sources, "<i4").tolist() == (sources - start).tolist()
        assert len(message.type_features) == 3
        for features, part in zip(message.type_features, union.features.take(own).parts, strict=True):
            if part is None:
                assert features.ByteSize() == 0
            else:
                assert_features(features, part)


@given(instance_graphs())
def test_messages_with_leaves_are_protobuf(graph: Neighborhood):
    rows = rows_of(graph)
    union, relations = rows.neighborhood, graph.edges.num_relations
    for i, content in enumerate(encode_rows(rows).to_pylist()):
        message = GraphFeature.FromString(content)
        start, stop = rows.node_offsets[i : i + 2]
        each = [union.edges.relation(number) for number in range(relations)]
        edges = [range(*own.offsets[[start, stop]]) for own in each]
        sources = [[sources_of(own, edge) for edge in of] for own, of in zip(each, edges, strict=True)]
        assert (message.format, message.num_relations) == (3, 0 if relations == 1 else 4)
        flat = [source - start for of in sources for own in of for source in own]
        assert np.frombuffer(message.sources, "<i4").tolist() == flat
        counts = [[len(own) for own in of] for of in sources]
        same = [of[0] if of and set(of) == {of[0]} else 0 for of in counts]
        assert np.frombuffer(message.leaves_of_relation, "<u4").tolist() == same
        listed = [count for own, of in zip(same, counts, strict=True) if own == 0 for count in of]
        assert np.frombuffer(message.leaves, "<u4").tolist() == listed


def instances() -> Neighborhood:
    """The triangle whose third node has instances (0, 1), (1, 2) and (0, 2), and whose second has (2,), (0, 2, 1)."""
    graph = triangle()
    edges = InEdges(
        offsets=np.array([0, 0, 2, 5]),
        sources=np.array([2, 0, 2, 1, 0, 1, 1, 2, 0, 2], np.int32),
        leaves=np.array([0, 1, 4, 6, 8, 10]),
    )
    degrees = Degrees(edges.lengths, np.array([3, 3, 4]), np.array([0, 2, 3], np.float32))
    return replace(graph, degrees=degrees, edges=edges, roots=np.array([2, 1]))


def test_as_many_leaves_each_are_one_number():
    column = encode_rows(extract_rows(instances(), np.array([2, 1]), sampling=EVERY_EDGE, num_layers=1))
    found = [GraphFeature.FromString(content) for content in column.to_pylist()]
    assert [np.frombuffer(each.leaves_of_relation, "<u4").tolist() for each in found] == [[2], [0]]
    assert [np.frombuffer(each.leaves, "<u4").tolist() for each in found] == [[], [1, 3]]


def test_leaves_that_contradict_themselves_are_refused():
    column = encode_rows(extract_rows(instances(), np.array([2, 1]), sampling=EVERY_EDGE, num_layers=1))
    alike, varying = (content.as_py() for content in column)

    def refused(content: bytes, match: str, **changes: object) -> None:
        message = GraphFeature.FromString(content)
        for name, value in changes.items():
            setattr(message, name, value if isinstance(value, int) else np.array(value, "<u4").tobytes())
        with pytest.raises(StorageError, match=rf"GraphFeature [01] of the column .*{match}"):
            decode_rows(pa.array([content, message.SerializeToString()]))
        with pytest.raises(StorageError, match=r"GraphFeature 0 of the column is damaged"):
            decode_rows(pa.array([message.SerializeToString()]))

    for content in (alike, varying):
        refused(content, "has another format", format=1)
        refused(content, "leaves_of_relation has the wrong length", leaves_of_relation=[])
        refused(content, "leaves_of_relation has the wrong length", leaves_of_relation=[2, 2])
        refused(content, "in_edges has the wrong length", in_edges=[])
    refused(alike, "leaves does not add up", leaves_of_relation=[1])
    refused(alike, "leaves does not add up", leaves_of_relation=[2**32 - 1])
    refused(alike, "leaves has the wrong length", leaves_of_relation=[0])
    refused(alike, "leaves has the wrong length", leaves=[2])
    refused(alike, "in_edges does not add up", in_edges=[0, 0, 2**32 - 1])
    refused(varying, "leaves has the wrong length", in_edges=[0, 2**32 - 1, 0])
    refused(varying, "leaves does not add up", leaves=[3, 3])
    refused(varying, "leaves does not add up", leaves=[1, 2**32 - 1])
    message = GraphFeature.FromString(encode(triangle()))
    message.leaves = b"1234"
    with pytest.raises(StorageError, match="it has leaves, which is not as its format"):
        decode_rows(pa.array([message.SerializeToString()]))


def typed_pair() -> Neighborhood:
    """0 of type 0 with a dense row, 1 of type 2 without; 0 -> 1 in relation 1 of 2."""
    in_degree, types = np.array([[0, 0], [0, 1]]), np.array([0, 2])
    return Neighborhood(
        roots=np.array([1]),
        node_ids=np.array([7, 300]),
        degrees=Degrees(in_degree, in_degree[::-1].copy(), in_degree.astype(np.float32), types),
        features=TypedFeatures(types, (Features(1, dense=np.ones((1, 1), np.float32)), None, None)),
        edges=InEdges(np.array([0, 0, 0, 0, 1]), np.array([0], np.int32), num_relations=2),
    )


def test_typed_messages_that_contradict_themselves_are_refused():
    good = encode(typed_pair())

    def refused(match: str, **changes: object) -> None:
        message = GraphFeature.FromString(good)
        for name, value in changes.items():
            message.ClearField(name)
            if name == "type_features":
                message.type_features.extend(value)
            else:
                setattr(message, name, value)
        with pytest.raises(StorageError, match=rf"GraphFeature [01] of the column .*{match}"):
            decode_rows(pa.array([good, message.SerializeToString()]))
        with pytest.raises(StorageError, match=r"GraphFeature 0 of the column is damaged"):
            decode_rows(pa.array([message.SerializeToString()]))

    refused("has another num_relations", num_relations=0)
    refused("has another num_relations", num_relations=3)
    refused("has another num_relations", num_relations=2**31)
    refused("num_relations is not as its format", format=1)
    refused("it has dense", dense=b"1234")
    refused("node_types has the wrong length", node_types=b"12")
    refused("node_types names a type, and there are features of 3", node_types=np.array([0, 3], "<u2").tobytes())
    refused("has more or fewer type_features", type_features=[])
    refused("dense has the wrong length", node_types=np.array([2, 2], "<u2").tobytes())
    refused("in_degree has the wrong length", in_degree=b"12345678")
    refused("in_edges has the wrong length", in_edges=b"12345678")
    message = GraphFeature.FromString(good)
    message.type_features[1].feature_width = 3
    with pytest.raises(StorageError, match="have a width and no columns"):
        decode_rows(pa.array([message.SerializeToString()]))
    with pytest.raises(StorageError, match="GraphFeature 1 of the column has another num_relations"):
        decode_rows(pa.array([good, encode(triangle())]))
    message = GraphFeature.FromString(encode(triangle()))
    message.node_types = b"123456"
    with pytest.raises(StorageError, match="num_relations is 0, and it has node_types"):
        decode_rows(pa.array([message.SerializeToString()]))


def test_features_of_a_type_have_the_numbers_of_a_graphfeature():
    numbers = {field.name: field.number for field in GraphFeature.DESCRIPTOR.fields}
    assert {field.name: field.number for field in TypeFeatures.DESCRIPTOR.fields}.items() <= numbers.items()


def test_generated_code_is_up_to_date(tmp_path: Path):
    out = tmp_path / "descriptor"
    source = "gnnflow/graphfeature/graph_feature.proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={out}", source]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    committed = FileDescriptorProto()
    graph_feature_pb2.DESCRIPTOR.CopyToProto(committed)
    generated = FileDescriptorSet.FromString(out.read_bytes()).file[0]
    for each in (committed, generated):
        each.ClearField("source_code_info")
        for field in (field for message in each.message_type for field in message.field):
            field.ClearField("json_name")
    assert generated == committed


def test_the_stub_has_the_fields_of_the_class():
    stub = ast.parse((REPOSITORY / "gnnflow/graphfeature/graph_feature_pb2.pyi").read_text())
    fields = {
        each.name: [line.target.id for line in each.body if isinstance(line, ast.AnnAssign) if line.target.id.islower()]
        for each in stub.body
        if isinstance(each, ast.ClassDef) and each.name != "DenseKind"
    }
    messages = graph_feature_pb2.DESCRIPTOR.message_types_by_name
    # both in the order of the .proto
    assert fields == {name: [field.name for field in message.fields] for name, message in messages.items()}


def test_the_class_runs_with_every_protobuf_that_is_allowed():
    """It refuses a protobuf older than the one it was generated for."""
    version = re.search(r"# Protobuf Python Version: (\S+)", Path(graph_feature_pb2.__file__).read_text())
    required = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"protobuf>={version[1]},<8" in required


def test_golden_bytes():
    """The format: shards written by one version are read by the next, so a change here is a new FORMAT."""
    assert hashlib.sha256(encode(typed_pair())).hexdigest() == TYPED_GOLDEN
    assert encode_references(np.array([5]))[0].as_py().hex() == "0a0405000000800101"
    assert hashlib.sha256(encode(triangle())).hexdigest() == GOLDEN
    assert hashlib.sha256(encode(instances())).hexdigest() == LEAVES_GOLDEN
