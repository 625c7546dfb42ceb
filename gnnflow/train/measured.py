"""Tells what metrics are of where that differs between models: one class, or costs of mistakes.

Metrics of one name are compared only where this is the same of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.graph.labels import AREAS
from gnnflow.train.decisions import Prices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gnnflow.train.decisions import Deciding

OF_DECISIONS = ("precision", "recall", "f1")
"""The metrics of decisions for or against one class, by its threshold."""
_TWO = 2


def measured_of(deciding: Deciding | None, names: Sequence[str]) -> dict[str, str]:
    """Return for such metrics the class or the costs that they are of, as a clause. names: of all classes."""
    found: dict[str, str] = {}
    if deciding is None:
        return found
    if deciding.positive is not None:
        at_k = (f"{name}_at_{deciding.top}" for name in ("precision", "recall"))
        # of two classes the area under the ROC curve is the same for both
        areas = AREAS if len(names) > _TWO else AREAS - {"roc_auc"}
        found |= dict.fromkeys((*OF_DECISIONS, *at_k, *sorted(areas)), f"of class {names[deciding.positive]}")
    if (prices := deciding.effective_prices) is not None:
        found["cost"] = f"where {_prices_text(prices, names)}"
    return found


def decided_by(deciding: Deciding | None, names: Sequence[str]) -> str:
    """Return the rule of decisions as a clause, without its threshold: the class, the rule, and the costs of it."""
    if deciding is None or deciding.decision is None:
        return ""
    of_class = "" if deciding.positive is None else f" for class {names[deciding.positive]}"
    # the rule for one class names its costs
    costs = f" where {_prices_text(Prices(deciding.decision.costs), names)}" if deciding.has_costs else ""
    return f"decided{of_class} by {deciding.decision.rule}{costs}"


def _prices_text(prices: Prices, names: Sequence[str]) -> str:
    """Return costs in words, the same for both forms of a config where they are the same costs."""
    if not prices.costs and len(names) == _TWO:  # as a matrix of two classes
        one, other = prices.positive, 1 - prices.positive
        matrix = {one: {other: prices.miss}, other: {one: prices.false_alarm}}
    elif not prices.costs:
        miss, alarm = (f"{each:g}" for each in (prices.miss, prices.false_alarm))
        return f"a miss of class {names[prices.positive]} costs {miss} and a false alarm {alarm}"
    else:
        matrix = {
            number: {column: cost for column, cost in enumerate(row) if column != number}
            for number, row in enumerate(prices.costs)
        }
    rows = (f"{names[number]} {text}" for number in sorted(matrix) if (text := _row_text(matrix[number], names)))
    return f"mistakes cost {'; '.join([*rows, 'else 1'])}"


def _row_text(row: Mapping[int, float], names: Sequence[str]) -> str:
    """Return the costs of one class's mistakes: one number, or those other than 1; empty where all are 1."""
    costs = set(row.values())
    if len(costs) == 1:
        return "" if costs == {1.0} else f"{costs.pop():g}"
    return " ".join(f"as {names[column]} {cost:g}" for column, cost in row.items() if cost != 1)
