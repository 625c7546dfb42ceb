"""Metrics of lists against figures by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gnnflow.train.lists import PlacedLinks, list_metrics, user_metrics


def test_metrics_of_users_are_the_ones_by_hand() -> None:
    # user 7 has three links, in places 0 and 2 and none; user 2 one in place 1; user 9 two, none found
    links = PlacedLinks(np.array([7, 2, 7, 9, 7, 9]), np.array([0, 1, 3, 3, 2, 3]))
    found = user_metrics(links, top=3, items=9)
    third = 1 / np.log2(3)
    assert found["recall"].tolist() == [1, 2 / 3, 0]  # of users 2, 7, 9
    assert found["precision"].tolist() == pytest.approx([1 / 3, 2 / 3, 0])
    assert found["ndcg"].tolist() == pytest.approx([third, (1 + 0.5) / (1 + third + 0.5), 0])
    means = list_metrics(links, top=3, items=9)
    assert means["recall_at_3"] == pytest.approx(5 / 9)
    assert means["recall_at_3_low"] < 5 / 9 < means["recall_at_3_high"]


def test_a_list_shorter_than_the_links_can_still_have_an_ndcg_of_one() -> None:
    links = PlacedLinks(np.zeros(5, np.int64), np.array([0, 1, 2, 2, 2]))
    assert user_metrics(links, top=2, items=9)["ndcg"].tolist() == [1]
    assert user_metrics(links, top=2, items=9)["recall"].tolist() == [0.4]


def test_a_list_longer_than_the_items_has_the_precision_of_all_items() -> None:
    links = PlacedLinks(np.zeros(4, np.int64), np.arange(4))
    assert user_metrics(links, top=1000, items=80)["precision"].tolist() == [4 / 80]


def test_without_links_there_is_no_metric() -> None:
    assert list_metrics(PlacedLinks(np.zeros(0, np.int64), np.zeros(0, np.int64)), top=3, items=9) == {}
