"""The native core's keys are those of NumPy, bit for bit, and texts are found as in a dictionary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.ingest.edge_rounds import _places, occurrences, ordered_keys
from gnnflow.native import core
from gnnflow.sampling import edge_keys
from gnnflow.storage.columns import id_keys

needs_native = pytest.mark.skipif(core() is None, reason="the native core was not built: no C compiler")

TEXTS = st.lists(st.text(max_size=20) | st.sampled_from(["", "a", "eight888", "sixteen-letters!"]), max_size=30)


def _numbers_and_keys(ends, ids, texts):
    dst, src = np.array(sorted(ends), np.int64).reshape(-1, 2).T
    number = occurrences(dst, src)
    keys = edge_keys(id_keys(pa.array(dst)), id_keys(pa.array(src)), number, relation="a__b__c")
    # the same edges in another order, joined to integers, have the same keys
    order, rows = (
        np.arange(len(dst))[::-1],
        pa.table({"dst_key": id_keys(pa.array(dst)), "src_key": id_keys(pa.array(src))}),
    )
    turned = rows.take(pa.array(order)).combine_chunks()
    assert ordered_keys(dst << 2 | src, order, turned, relation="a__b__c").tolist() == keys.tolist()
    sliced = pa.array(["before", *texts, "after"]).slice(1, len(texts))
    return [each.tolist() for each in (number, keys, id_keys(pa.array(ids, pa.int64())), id_keys(sliced))]


@needs_native
@given(
    ends=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30),
    ids=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9),
    texts=TEXTS,
)
def test_keys_are_the_same_without_the_core(ends, ids, texts):
    native = _numbers_and_keys(ends, ids, texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gnnflow.native.keys.core", lambda: None)
        assert _numbers_and_keys(ends, ids, texts) == native


@given(ids=TEXTS, wanted=TEXTS, alike=st.booleans())
def test_places_of_texts_are_found_and_others_are_not(ids, wanted, alike):
    ids = list(dict.fromkeys(ids))
    with pytest.MonkeyPatch.context() as patch:
        if alike:  # texts of one key are told apart by their letters
            patch.setattr("gnnflow.ingest.edge_rounds.hash_texts", lambda held: np.zeros(len(held[0]) - 1, np.uint64))
        found = _places(pa.array(ids, pa.large_string()), pa.array([*wanted, *ids], pa.large_string()))
    places = {text: place for place, text in enumerate(ids)}
    assert found.tolist() == [places.get(text, -1) for text in [*wanted, *ids]]
