"""Decides classes by the costs of mistakes, from probabilities that are fitted to the valid split.

A model's probabilities may be far from shares of targets: trained with `train.class_weight` it expects too many of a
rare class. So before costs are expected, one scale of the log-probabilities and one offset a class make them fit valid:
bias-corrected temperature scaling (Alexandari, Kundaje and Shrikumar, ICML 2020).

Shapes: n targets, C classes.
"""

from __future__ import annotations

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.graph.run_facts import Decision

_SMALLEST = float(np.finfo(np.float32).tiny)
_DECIMALS = 4
"""Of the fit, so that valid outputs that another execution rounds otherwise decide alike."""


def softmax_of(logits: FloatArray) -> FloatArray:
    """Return the probabilities of classes [n, C], float32, of raw outputs; computed in float64."""
    return np.asarray(_shares(logits.astype(np.float64)), np.float32)


def decided_classes(probabilities: FloatArray, decision: Decision) -> IntArray:
    """Return the class that is decided for each target [n] by its probabilities [n, C].

    It is the one of least expected cost, without costs the likeliest; of equally good ones the first.
    """
    if not len(probabilities):
        return np.zeros(0, np.int64)
    if not decision.costs:
        return np.asarray(probabilities.argmax(axis=1), np.int64)
    fitted = _shares(decision.scale * _logs(probabilities) + np.array(decision.offsets))
    return np.asarray((fitted @ np.array(decision.costs)).argmin(axis=1), np.int64)


def fit_probabilities(probabilities: FloatArray, labels: Array) -> tuple[float, tuple[float, ...]]:
    """Return the scale and offsets [C] with which probabilities [n, C] fit labels [n] best.

    The likelihood is largest under a normal prior of unit variance around no change, so a class without targets keeps
    a finite offset, and few targets change little.
    """
    from scipy.optimize import minimize  # takes a third of a second, and few runs have costs

    logs, rows = _logs(probabilities), np.arange(len(labels))
    usual = np.append(1.0, np.zeros(logs.shape[1]))

    def loss_and_slope(values: FloatArray) -> tuple[float, FloatArray]:
        fitted = _shares(values[0] * logs + values[1:])
        loss = -np.log(np.maximum(fitted[rows, labels], _SMALLEST)).sum()
        fitted[rows, labels] -= 1
        moved = values - usual
        slope = np.append((fitted * logs).sum(), fitted.sum(axis=0)) + moved
        return float(loss + moved @ moved / 2), slope

    bounds = [(0.0, None), *[(None, None)] * logs.shape[1]]
    found = minimize(loss_and_slope, usual, jac=True, method="L-BFGS-B", bounds=bounds).x
    scale, *offsets = np.round(found, _DECIMALS).tolist()
    return float(scale), tuple(offsets)


def _logs(probabilities: FloatArray) -> FloatArray:
    return np.log(np.maximum(probabilities, _SMALLEST), dtype=np.float64)


def _shares(values: FloatArray) -> FloatArray:
    values = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(values / values.sum(axis=1, keepdims=True))
