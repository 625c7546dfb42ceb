"""A layer class that breaks the contract is refused when it is created, in words."""

from __future__ import annotations

from abc import ABC

import pytest
import torch

from gnnflow.graph.errors import LayerError
from gnnflow.layers import GCN, GIN, RGCN, GraphSAGE, Layer
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


@pytest.mark.parametrize("layer", [GCN(5, 3), GraphSAGE(5, 3), RGCN(5, 3)], ids=lambda layer: type(layer).__name__)
def test_a_linear_update_says_what_update_computes(layer):
    linear = layer.linear_update
    with torch.no_grad():
        linear.bias.copy_(torch.randn(3))
    own, aggregated = {"h": torch.randn(4, 5)}, torch.randn(4, 1, 3)
    wanted = aggregated[:, 0] + linear.bias
    if linear.weight is not None:
        wanted = wanted + own[linear.term] @ linear.weight.T
    torch.testing.assert_close(layer.update(own, aggregated), wanted)


def test_what_is_not_linear_has_no_linear_update():
    assert GIN(5, 3).linear_update is None
    assert GraphSAGE(5, 3, aggregator="max").linear_update is None
