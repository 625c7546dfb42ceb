"""A layer class that breaks the contract is refused when it is created, in words."""

from __future__ import annotations

from abc import ABC

import pytest

from gnnflow.graph.errors import LayerError
from gnnflow.layers import GCN, Layer
from gnnflow.layers.terms import GatheredTerms


def test_defining_both_edge_functions_is_refused():
    with pytest.raises(LayerError, match=r"Both: it defines both coefficient\(\) and message\(\).*Keep one"):

        class Both(Layer):
            def coefficient(self, source, target, edge): ...

            def message(self, source, target, edge): ...


def test_defining_neither_edge_function_is_refused():
    with pytest.raises(LayerError, match=r"Neither: it defines neither coefficient\(\) nor message\(\)"):

        class Neither(Layer):
            def transform(self, h, node): ...


def test_all_in_edges_at_once_go_with_no_edge_function_and_do_not_merge():
    class Own(Layer):
        def propagate(self, source, target, csr, edge): ...

    assert Own.uses_propagate
    assert not Own.aggregation.mergeable
    with pytest.raises(LayerError, match=r"defines both message\(\) and propagate\(\)"):

        class WithMessages(Own):
            def message(self, source, target, edge): ...


def test_an_abstract_family_may_leave_the_edge_function_to_its_members():
    class Family(Layer, ABC):
        def transform(self, h, node): ...

    class Member(Family):
        def message(self, source, target, edge): ...

    assert Member.uses_messages
    assert not GCN.uses_messages


def test_a_second_edge_function_in_a_subclass_is_refused():
    with pytest.raises(LayerError, match="both"):

        class WithMessages(GCN):
            def message(self, source, target, edge): ...


def test_terms_nobody_reads_are_never_gathered():
    gathered = []
    terms = GatheredTerms({"value": 1, "logit": 2}, lambda rows: gathered.append(rows) or rows)
    assert [terms["logit"], terms["logit"]] == [2, 2]
    assert gathered == [2]
    assert list(terms) == ["value", "logit"]
