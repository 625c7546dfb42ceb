"""Writes and reads columns of GraphFeatures in protobuf's wire format, many messages at once, field by field.

A message is a sequence of (tag, value); a value is a varint, or a length and that many bytes. Writing makes one
column of headers and one of payloads per field and lets Arrow join them element-wise; payloads are views of the
arrays they come from. Reading walks all messages in step, one field per step, noting where values lie; a field's
payloads are then slices of the same buffer, gathered by Arrow in one `take`. Loops are over fields and varint bytes,
never over messages. The generated class (`graph_feature_pb2`) gives the numbers of the fields, and reads these
messages too; it copies each three times (docs/decisions/0031-protobuf-at-run-time.md).

Encoding reference: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.errors import StorageError
from gnnflow.graphfeature.graph_feature_pb2 import GraphFeature
from gnnflow.storage.columns import combine

# TypeFeatures gives its fields the numbers that they have in GraphFeature
_NUMBERS = {field.name: field.number for field in GraphFeature.DESCRIPTOR.fields}
_VARINT, _BYTES = 0, 2
_PAYLOAD_BITS = 7
_MORE = 1 << _PAYLOAD_BITS
_MAX_BITS = 63
_REPAIR = "Delete the artifact's folder and run the stage again."
_MAX_MESSAGE = 2**31 - 1  # the limit of protobuf and of a Parquet value

ByteArray = npt.NDArray[np.uint8]


def binary_column(content: Any, offsets: IntArray) -> pa.LargeBinaryArray:
    """Return the byte strings content[offsets[i] : offsets[i + 1]] as a column over the same memory."""
    buffers = [None, pa.py_buffer(offsets), content if isinstance(content, pa.Buffer) else pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def integer_field(name: str, value: int) -> pa.Scalar:
    """Return a varint field that is the same in every message."""
    assert value >= 0
    return pa.scalar(_header(_NUMBERS[name] << 3 | _VARINT, value), pa.large_binary())


def bytes_field(name: str, content: Array, offsets: IntArray) -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]:
    """Return a bytes field as columns of headers and payloads. offsets [n + 1] count rows of content."""
    # bytes of a row of content, and where each message's bytes begin [n + 1]
    row_bytes = content.dtype.itemsize * int(np.prod(content.shape[1:], dtype=np.int64))
    ends = offsets * row_bytes
    return _headers(name, np.diff(ends)), binary_column(content.reshape(-1).view(np.uint8), ends)


def message_field(name: str, messages: pa.LargeBinaryArray) -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]:
    """Return a field that holds one message in each of n messages, as columns of headers and payloads."""
    return _headers(name, np.diff(_offsets(messages))), messages


def join_fields(fields: Sequence[pa.Array | pa.Scalar]) -> pa.LargeBinaryArray:
    """Return the messages made of the given fields, in their order. Raises StorageError for one above 2 GiB."""
    # checked before a byte is copied, since two copies may not fit into memory
    lengths = sum(len(field.as_py()) if isinstance(field, pa.Scalar) else np.diff(_offsets(field)) for field in fields)
    largest = int(np.max(lengths, initial=0))
    if largest > _MAX_MESSAGE:
        raise StorageError(
            f"a GraphFeature takes {largest:,} bytes, the format allows {_MAX_MESSAGE:,}",
            fix="Lower flat.shard_size, or sample with smaller fan-outs.",
        )
    return pc.binary_join_element_wise(*fields, pa.scalar(b"", pa.large_binary()))


def _headers(name: str, lengths: IntArray) -> pa.LargeBinaryArray:
    """Return the header of a bytes field in each message, whose payloads have the given lengths [n]."""
    distinct, places = np.unique(lengths, return_inverse=True)
    tag = _NUMBERS[name] << 3 | _BYTES
    return pa.array([_header(tag, length) for length in distinct.tolist()], pa.large_binary()).take(pa.array(places))


def _header(tag: int, value: int) -> bytes:
    """Return a tag and a value >= 0 as varints: seven bits a byte, lowest first, the top bit where a byte follows."""
    content = bytearray()
    for number in (tag, value):
        rest = number
        while rest >= _MORE:
            content.append(rest & (_MORE - 1) | _MORE)
            rest >>= _PAYLOAD_BITS
        content.append(rest)
    return bytes(content)


@dataclass(frozen=True)
class _Span:
    """One field in every message: the start of its payload [n], and its length or, for a varint, its value [n].

    A message without the field has an empty payload or 0, as protobuf defines it.
    """

    start: IntArray
    value: IntArray


class _Fields(NamedTuple):
    """Fields of several messages: the message that each is in, and the start and length of its payload."""

    rows: IntArray
    starts: IntArray
    lengths: IntArray


@dataclass(frozen=True)
class Messages:
    """A parsed column: the places of the fields of its n messages. Unknown fields are kept and not read.

    repeated: fields that a message may have several times.
    """

    content: pa.Buffer
    offsets: IntArray
    spans: dict[tuple[int, int], _Span]
    repeated: dict[int, _Fields]

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.offsets) - 1

    def has(self, name: str) -> bool:
        """Return whether any message has the bytes field."""
        return (_NUMBERS[name], _BYTES) in self.spans

    def integers(self, name: str) -> IntArray:
        """Return a varint field [n], 0 where it is absent."""
        span = self.spans.get((_NUMBERS[name], _VARINT))
        return np.zeros(len(self), np.int64) if span is None else span.value

    def lengths(self, name: str) -> IntArray:
        """Return the number of bytes of a field in each message [n]."""
        span = self.spans.get((_NUMBERS[name], _BYTES))
        return np.zeros(len(self), np.int64) if span is None else span.value

    def payload(self, name: str, dtype: npt.DTypeLike, *, aligned: bool = True) -> Array:
        """Return a bytes field of all messages, one after the other, as one array. Read-only.

        For a single message it is a view. NumPy copies an unaligned view in every operation, so it is copied once here;
        aligned=False skips the copy.
        """
        span = self.spans.get((_NUMBERS[name], _BYTES))
        if span is None:
            return np.zeros(0, dtype)
        if len(self) == 1:
            start, length = int(span.start[0]), int(span.value[0])
            found: Array = np.frombuffer(self.content, np.uint8)[start : start + length].view(dtype)
            return np.require(found, requirements="A") if aligned else found
        # the payloads of all messages without the bytes between them
        content = self._slices(span.start, span.value).buffers()[2]
        size = int(span.value.sum())
        return np.frombuffer(content, np.uint8, count=size).view(dtype) if size else np.zeros(0, dtype)

    def nested(self, name: str) -> tuple[Messages, ...]:
        """Return the messages of a repeated field: the first of every message, then the second, and so on.

        Raises StorageError where messages have different numbers of them, and as `parse` does.
        """
        rows, start, length = self.repeated.get(_NUMBERS[name], (np.zeros(0, np.int64),) * 3)
        counts = np.bincount(rows, minlength=len(self))
        refuse(counts != counts[:1], f"has more or fewer {name} than those before it")
        # numbers of the nested messages, by message and in order [n, times]
        order = np.argsort(rows, kind="stable").reshape(len(self), -1)
        return tuple(parse(self._slices(start[of], length[of])) for of in order.T)

    def _slices(self, start: IntArray, length: IntArray) -> pa.LargeBinaryArray:
        """Return a slice of each message as a column. start and length [n]."""
        # Slices of the messages and the gaps between them alternate [2n]; take the slices. One alone is not copied.
        bounds = np.stack([start, start + length], axis=1).ravel()
        column = binary_column(self.content, bounds)
        return column if len(self) == 1 else column.take(pa.array(np.arange(0, 2 * len(self), 2)))


def parse(column: pa.Array | pa.ChunkedArray, *, repeated: Collection[str] = ()) -> Messages:
    """Find every field of a column of messages (binary or large binary), in any order.

    The last of several equal fields of a message counts, except for fields in `repeated`. Raises StorageError for
    nulls, truncated messages, and bytes that are not a GraphFeature.
    """
    if column.null_count:
        raise StorageError(f"{column.null_count} of {len(column)} GraphFeatures are null", fix=_REPAIR)
    column = combine(column.cast(pa.large_binary()))
    offsets, buffer = _offsets(column), column.buffers()[2] or pa.py_buffer(b"")
    content = np.frombuffer(buffer, np.uint8)
    spans: dict[tuple[int, int], _Span] = {}
    listed = {_NUMBERS[name] for name in repeated}
    # each field that may be repeated, step by step
    several: dict[int, list[_Fields]] = {}
    # unfinished messages [U], and the position of each in the bytes [U]
    rows = np.flatnonzero(offsets[1:] > offsets[:-1])
    at = offsets[rows]
    while len(rows):
        # the next field of each: its tag (number and wire type), its value or length, and its payload's bytes [U]
        end = offsets[rows + 1]
        tag, at = _varints(content, at, end, rows)
        value, at = _varints(content, at, end, rows)
        length = np.where(tag & 7 == _BYTES, value, 0)
        _refuse(rows, length > end - at, "is truncated")
        _refuse(rows, (tag & 7 != _VARINT) & (tag & 7 != _BYTES), "is not a GraphFeature")
        # messages may have different fields here, so each tag is noted for its messages
        for field in np.unique(tag).tolist():
            span = spans.setdefault(
                (field >> 3, field & 7), _Span(offsets[:-1].copy(), np.zeros(len(column), np.int64))
            )
            own = _Fields(rows[tag == field], at[tag == field], value[tag == field])
            span.start[own.rows], span.value[own.rows] = own.starts, own.lengths
            if field & 7 == _BYTES and field >> 3 in listed:
                several.setdefault(field >> 3, []).append(own)
        at += length
        rows, at = rows[at < end], at[at < end]
    listed_fields = {
        number: _Fields(*(np.concatenate(column) for column in zip(*steps, strict=True)))
        for number, steps in several.items()
    }
    return Messages(buffer, offsets, spans, listed_fields)


def _varints(content: ByteArray, at: IntArray, end: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Read a varint of up to 63 bits at each position; returns the values and the positions after them."""
    at, value = at.copy(), np.zeros(len(at), np.int64)
    # unfinished varints
    unread = np.arange(len(at))
    for shift in range(0, _MAX_BITS, _PAYLOAD_BITS):
        _refuse(rows[unread], at[unread] >= end[unread], "is truncated")
        # the next byte of each: seven bits of the value, lowest first, and whether another byte follows
        byte = content[at[unread]].astype(np.int64)
        value[unread] |= (byte & (_MORE - 1)) << shift
        at[unread] += 1
        unread = unread[byte >= _MORE]
        if not len(unread):
            return value, at
    _refuse(rows, np.isin(np.arange(len(at)), unread), "is not a GraphFeature")
    return value, at


def refuse(broken: Array, problem: str) -> None:
    """Raise StorageError naming the first message for which broken [n] holds."""
    _refuse(np.arange(len(broken)), broken, problem)


def _refuse(rows: IntArray, broken: Array, problem: str) -> None:
    if broken.any():
        raise StorageError(f"GraphFeature {rows[np.argmax(broken)]} of the column {problem}", fix=_REPAIR)


def _offsets(column: pa.LargeBinaryArray) -> IntArray:
    buffer = column.buffers()[1]
    if not len(column) or buffer is None:
        return np.zeros(len(column) + 1, np.int64)
    offsets: IntArray = np.frombuffer(buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    return offsets
