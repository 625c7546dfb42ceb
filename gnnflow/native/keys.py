"""Keys of ids and of edges, and places of texts.

Shapes: V values, I ids, E edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from gnnflow.native.columns import MOST_IDS
from gnnflow.native.library import core

if TYPE_CHECKING:
    from collections.abc import Sequence

IntArray = npt.NDArray[np.int64]
KeyArray = npt.NDArray[np.uint64]
ByteArray = npt.NDArray[np.uint8]


class Texts(NamedTuple):
    """Texts one after another: text i lies from offsets[i] to offsets[i + 1] in content; keys: of each, or None."""

    offsets: IntArray
    content: ByteArray
    keys: KeyArray | None = None


def hash_ids(ids: IntArray) -> KeyArray | None:
    """Return the key of each id [V]; None without the core."""
    native = core()
    if native is None:
        return None
    ids = np.ascontiguousarray(ids, np.int64)
    keys = np.empty(len(ids), np.uint64)
    native.gnnflow_hash(len(ids), ids.ctypes.data, keys.ctypes.data)
    return keys


def hash_texts(texts: Texts) -> KeyArray | None:
    """Return the key of each text [V]; None without the core."""
    native = core()
    if native is None:
        return None
    keys = np.empty(len(texts.offsets) - 1, np.uint64)
    native.gnnflow_hash_texts(len(keys), *_addresses(texts), keys.ctypes.data)
    return keys


def number_pairs(dst: IntArray, src: IntArray) -> IntArray | None:
    """Return the number of each edge in its pair, whose edges lie together [E]; None without the core."""
    native = core()
    if native is None:
        return None
    ends = [np.ascontiguousarray(each, np.int64) for each in (dst, src)]
    numbers = np.empty(len(dst), np.int64)
    native.gnnflow_number_pairs(len(dst), *(each.ctypes.data for each in ends), numbers.ctypes.data)
    return numbers


def hash_edges(dst_keys: KeyArray, src_keys: KeyArray, numbers: IntArray, word: np.uint64) -> KeyArray | None:
    """Return the key of each edge [E] from its ends' keys and its number in the pair; None without the core.

    word: of the relation.
    """
    native = core()
    if native is None:
        return None
    given = [np.ascontiguousarray(each).view(np.uint64) for each in (dst_keys, src_keys, numbers)]
    keys = np.empty(len(dst_keys), np.uint64)
    native.gnnflow_edge_keys(len(keys), *(each.ctypes.data for each in given), int(word), keys.ctypes.data)
    return keys


def hash_pairs(
    pairs: IntArray, order: IntArray, dst_keys: KeyArray, src_keys: KeyArray, word: np.uint64
) -> KeyArray | None:
    """Return what `hash_edges` returns for edges of pairs in order [E]; None without the core.

    pairs: both ends of each edge as one integer. order: the row of each edge in the keys of its ends.
    """
    native = core()
    if native is None:
        return None
    places = [np.ascontiguousarray(each, np.int64) for each in (pairs, order)]
    ends = [np.ascontiguousarray(each).view(np.uint64) for each in (dst_keys, src_keys)]
    keys = np.empty(len(order), np.uint64)
    native.gnnflow_pair_keys(len(keys), *(each.ctypes.data for each in (*places, *ends)), int(word), keys.ctypes.data)
    return keys


def place_owned(ids: IntArray) -> IntArray | None:
    """Return the table of a partition's distinct ids [I] that `find_owned` reads; None without the core.

    Slots of an id and its place [2^bits, 2], a quarter of them or more with the place -1.
    """
    native = core()
    if native is None:
        return None
    ids = np.ascontiguousarray(ids, np.int64)
    bits = max(4 * len(ids) // 3, 1).bit_length()
    slots = np.full((1 << bits, 2), -1, np.int64)
    native.gnnflow_place_owned(len(ids), ids.ctypes.data, bits, slots.ctypes.data)
    return slots


def find_owned(slots: Sequence[IntArray], begins: IntArray, wanted: IntArray, keys: KeyArray) -> IntArray:
    """Return the dense id of each wanted id [V], -1 where no partition has it. Raises RuntimeError without the core.

    slots: the table of each partition, which owns the ids whose key has its number as remainder [P]. begins [P]: its
    first dense id. keys [V]: of the wanted ids.
    """
    native = core()
    if native is None:
        raise RuntimeError("tables of ids were made by the native core, which this process lacks")
    held = [np.ascontiguousarray(each, np.int64) for each in slots]
    addresses = np.array([each.ctypes.data for each in held], np.uintp)
    bits = np.array([len(each).bit_length() - 1 for each in held], np.int64)
    given = [np.ascontiguousarray(begins, np.int64), np.ascontiguousarray(wanted, np.int64), np.ascontiguousarray(keys)]
    found = np.empty(len(wanted), np.int64)
    native.gnnflow_find_owned(
        len(held),
        addresses.ctypes.data,
        bits.ctypes.data,
        given[0].ctypes.data,
        len(found),
        given[1].ctypes.data,
        given[2].ctypes.data,
        found.ctypes.data,
    )
    return found


def find_texts(ids: Texts, wanted: Texts) -> IntArray | None:
    """Return the place of each wanted text [V] among distinct ids [I], -1 where it is none; None without the core."""
    native = core()
    if native is None or len(ids.offsets) > MOST_IDS:
        return None
    assert ids.keys is not None
    assert wanted.keys is not None
    bits = max(2 * len(ids.keys), 1).bit_length()
    slots, found = np.full(1 << bits, -1, np.int32), np.empty(len(wanted.keys), np.int64)
    own, other = (*_addresses(ids), ids.keys.ctypes.data), (*_addresses(wanted), wanted.keys.ctypes.data)
    native.gnnflow_find_texts(len(ids.keys), *own, bits, slots.ctypes.data, len(found), *other, found.ctypes.data)
    return found


def _addresses(texts: Texts) -> tuple[int, int]:
    assert texts.offsets.dtype == np.int64
    assert texts.offsets.flags.c_contiguous
    assert texts.content.flags.c_contiguous
    return texts.offsets.ctypes.data, texts.content.ctypes.data
