from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DenseKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FLOAT32: _ClassVar[DenseKind]
    FLOAT16: _ClassVar[DenseKind]
    BFLOAT16: _ClassVar[DenseKind]
    INT8: _ClassVar[DenseKind]
    INT4: _ClassVar[DenseKind]
FLOAT32: DenseKind
FLOAT16: DenseKind
BFLOAT16: DenseKind
INT8: DenseKind
INT4: DenseKind

class GraphFeature(_message.Message):
    __slots__ = ("roots", "node_ids", "in_degree", "out_degree", "in_weight", "in_edges", "sources", "edge_weight", "edge_attribute_width", "edge_attributes", "edge_next_arrival", "edge_time", "feature_width", "dense", "feature_count", "feature_index", "feature_value", "num_relations", "node_types", "type_features", "leaves_of_relation", "leaves", "dense_kind", "dense_low", "dense_step", "format")
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    IN_DEGREE_FIELD_NUMBER: _ClassVar[int]
    OUT_DEGREE_FIELD_NUMBER: _ClassVar[int]
    IN_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    IN_EDGES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    EDGE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    EDGE_ATTRIBUTE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    EDGE_ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    EDGE_NEXT_ARRIVAL_FIELD_NUMBER: _ClassVar[int]
    EDGE_TIME_FIELD_NUMBER: _ClassVar[int]
    FEATURE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    DENSE_FIELD_NUMBER: _ClassVar[int]
    FEATURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FEATURE_INDEX_FIELD_NUMBER: _ClassVar[int]
    FEATURE_VALUE_FIELD_NUMBER: _ClassVar[int]
    NUM_RELATIONS_FIELD_NUMBER: _ClassVar[int]
    NODE_TYPES_FIELD_NUMBER: _ClassVar[int]
    TYPE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    LEAVES_OF_RELATION_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    DENSE_KIND_FIELD_NUMBER: _ClassVar[int]
    DENSE_LOW_FIELD_NUMBER: _ClassVar[int]
    DENSE_STEP_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    roots: bytes
    node_ids: bytes
    in_degree: bytes
    out_degree: bytes
    in_weight: bytes
    in_edges: bytes
    sources: bytes
    edge_weight: bytes
    edge_attribute_width: int
    edge_attributes: bytes
    edge_next_arrival: bytes
    edge_time: bytes
    feature_width: int
    dense: bytes
    feature_count: bytes
    feature_index: bytes
    feature_value: bytes
    num_relations: int
    node_types: bytes
    type_features: _containers.RepeatedCompositeFieldContainer[TypeFeatures]
    leaves_of_relation: bytes
    leaves: bytes
    dense_kind: DenseKind
    dense_low: bytes
    dense_step: bytes
    format: int
    def __init__(self, roots: _Optional[bytes] = ..., node_ids: _Optional[bytes] = ..., in_degree: _Optional[bytes] = ..., out_degree: _Optional[bytes] = ..., in_weight: _Optional[bytes] = ..., in_edges: _Optional[bytes] = ..., sources: _Optional[bytes] = ..., edge_weight: _Optional[bytes] = ..., edge_attribute_width: _Optional[int] = ..., edge_attributes: _Optional[bytes] = ..., edge_next_arrival: _Optional[bytes] = ..., edge_time: _Optional[bytes] = ..., feature_width: _Optional[int] = ..., dense: _Optional[bytes] = ..., feature_count: _Optional[bytes] = ..., feature_index: _Optional[bytes] = ..., feature_value: _Optional[bytes] = ..., num_relations: _Optional[int] = ..., node_types: _Optional[bytes] = ..., type_features: _Optional[_Iterable[_Union[TypeFeatures, _Mapping]]] = ..., leaves_of_relation: _Optional[bytes] = ..., leaves: _Optional[bytes] = ..., dense_kind: _Optional[_Union[DenseKind, str]] = ..., dense_low: _Optional[bytes] = ..., dense_step: _Optional[bytes] = ..., format: _Optional[int] = ...) -> None: ...

class TypeFeatures(_message.Message):
    __slots__ = ("feature_width", "dense", "feature_count", "feature_index", "feature_value", "dense_kind", "dense_low", "dense_step")
    FEATURE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    DENSE_FIELD_NUMBER: _ClassVar[int]
    FEATURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FEATURE_INDEX_FIELD_NUMBER: _ClassVar[int]
    FEATURE_VALUE_FIELD_NUMBER: _ClassVar[int]
    DENSE_KIND_FIELD_NUMBER: _ClassVar[int]
    DENSE_LOW_FIELD_NUMBER: _ClassVar[int]
    DENSE_STEP_FIELD_NUMBER: _ClassVar[int]
    feature_width: int
    dense: bytes
    feature_count: bytes
    feature_index: bytes
    feature_value: bytes
    dense_kind: DenseKind
    dense_low: bytes
    dense_step: bytes
    def __init__(self, feature_width: _Optional[int] = ..., dense: _Optional[bytes] = ..., feature_count: _Optional[bytes] = ..., feature_index: _Optional[bytes] = ..., feature_value: _Optional[bytes] = ..., dense_kind: _Optional[_Union[DenseKind, str]] = ..., dense_low: _Optional[bytes] = ..., dense_step: _Optional[bytes] = ...) -> None: ...
