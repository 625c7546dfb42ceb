"""A message is text: what a terminal would obey is written out."""

from __future__ import annotations

from gnnflow.graph.errors import StorageError


def test_control_characters_of_an_id_do_not_reach_the_terminal():
    shown = str(StorageError("id 'a\x1b[31m\u202eb' is given twice", where="nodes\x07.parquet", fix="Remove\none."))
    assert shown == "nodes\\x07.parquet: id 'a\\x1b[31m\\u202eb' is given twice. Remove\none."
