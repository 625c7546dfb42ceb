"""The rare class of both graphs lies in the circle of a node: its columns alone say much less."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score
from threadpoolctl import threadpool_limits

from gnnflow.datasets import churn_tables, fraud_tables

GRAPHS = {
    "fraud": (fraud_tables, ("accounts", "payments"), 0.015, ("age", "balance", "days_open", "night_share")),
    "churn": (churn_tables, ("customers", "calls"), 0.08, ("months", "fee", "support_calls")),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_rare_class_shows_in_the_circle_and_hardly_in_the_columns(name):
    make, (people, contacts), share, names = GRAPHS[name]
    tables = make(seed=1, unknown=0.0)
    assert make(seed=1, unknown=0.0) == tables
    nodes, edges = tables[people], tables[contacts]
    truth = np.asarray(pc.equal(nodes[name if name in nodes.column_names else "churned"], "yes"))
    assert truth.mean() == pytest.approx(share, abs=0.001)
    own = np.stack([np.asarray(nodes[column], np.float64) for column in names], axis=1)
    src, dst = (np.asarray(pc.index_in(edges[end], nodes.column(0).combine_chunks())) for end in edges.column_names[:2])
    assert (src != dst).all()
    near = np.stack([np.bincount(dst, column[src], len(nodes)) for column in own.T], axis=1)
    near /= np.maximum(np.bincount(dst, minlength=len(nodes)), 1)[:, None]
    cut = len(nodes) // 2
    assert make(seed=1)[people][nodes.column_names[-1]].null_count == pytest.approx(len(nodes) / 4, rel=0.1)
    scores = []
    with threadpool_limits(1):
        for columns in (own, np.concatenate([own, near], axis=1)):
            trees = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(columns[:cut], truth[:cut])
            scores.append(average_precision_score(truth[cut:], trees.predict_proba(columns[cut:])[:, 1]))
    assert scores[1] > 1.3 * scores[0] > 1.3 * share
