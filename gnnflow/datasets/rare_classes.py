"""Graphs of people in circles where one class is rare: fraud in rings of accounts, and customers who leave.

Everybody has a circle of ten with whom half of their edges are, so the shape of the graph tells nothing. An account of
a fraud ring looks like one of many new and nightly ordinary accounts; what gives it away is that its circle looks so
too. A customer leaves where the network is bad, which shows in the support calls of the whole circle.

Shapes: N people, E edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.datasets.pieces import numbered_ids, require
from gnnflow.datasets.tables import refuse_others
from gnnflow.storage.filesystem import join
from gnnflow.storage.tables import write_table

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray

_CIRCLE = 10
_IN_CIRCLE_SHARE = 0.5
_EDGES_EACH = 10
_FRAUD_SHARE, _NEW_SHARE, _CHURN_SHARE = 0.015, 0.1, 0.08
_COUNTRIES = ("DE", "FR", "GB", "US", "IN", "BR", "NL", "PL")
_PLANS = ("basic", "family", "unlimited")
_YEAR = 365 * 24 * 60 * 60

Tables = dict[str, pa.Table]


def fraud_tables(*, num_accounts: int = 20_000, seed: int = 0, unknown: float = 0.25) -> Tables:
    """Return accounts and payments, ten payments per account: the same arguments give the same rows.

    accounts: account_id, country, age, balance, days_open, night_share (of the logins), fraud (yes, no, or null: of
    the share `unknown`). 1.5 % are fraud, in rings of ten; a tenth of the others have the columns of fraud as well.
    payments: sender, receiver, amount, timestamp (seconds of a year). Raises ConfigError below 1,000 accounts.
    """
    require("num_accounts", num_accounts, 1_000)
    rng = np.random.default_rng([seed, 3])
    order = rng.permutation(num_accounts)
    rings = max(1, round(num_accounts * _FRAUD_SHARE / _CIRCLE))
    fraud = np.zeros(num_accounts, bool)
    fraud[order[: rings * _CIRCLE]] = True
    is_new = fraud | (rng.random(num_accounts) < _NEW_SHARE)
    ids = numbered_ids("ACC", num_accounts, width=7)
    src, dst = _contacts(order, rng)
    accounts = {
        "account_id": ids,
        "country": _picked(_COUNTRIES, num_accounts, rng),
        "age": pa.array(np.clip(rng.normal(44 - 6 * is_new, 14), 18, 95).astype(np.int64)),
        "balance": pa.array(np.round(np.exp(rng.normal(7 - is_new, 1)), 2)),
        "days_open": pa.array(np.exp(rng.normal(6 - is_new, 1)).astype(np.int64)),
        "night_share": pa.array(np.round(rng.beta(2 + 1.5 * is_new, 8), 3)),
        "fraud": _yes_no(fraud, rng.random(num_accounts) < unknown),
    }
    payments = {
        "sender": ids.take(pa.array(src)),
        "receiver": ids.take(pa.array(dst)),
        "amount": pa.array(np.round(np.exp(rng.normal(4, 1, len(src))), 2)),
        "timestamp": pa.array(rng.integers(0, _YEAR, len(src))),
    }
    return {"accounts": pa.table(accounts), "payments": pa.table(payments)}


def churn_tables(*, num_customers: int = 10_000, seed: int = 0, unknown: float = 0.25) -> Tables:
    """Return customers and calls, ten calls per customer: the same arguments give the same rows.

    customers: customer_id, plan, months (since the contract), fee, support_calls, churned (yes, no, or null: of the
    share `unknown`, whose contract still runs); 8 % leave. calls: caller, callee, minutes, timestamp (seconds of a
    year). Raises ConfigError below 1,000 customers.
    """
    require("num_customers", num_customers, 1_000)
    rng = np.random.default_rng([seed, 4])
    order = rng.permutation(num_customers)
    # how bad the network is for each circle, then for each customer [N]
    trouble = np.empty(num_customers)
    trouble[order] = np.repeat(rng.gamma(0.5, 2.0, -(-num_customers // _CIRCLE)), _CIRCLE)[:num_customers]
    months = rng.geometric(1 / 30, num_customers)
    score = 0.7 * trouble - 0.02 * months + rng.normal(0, 0.7, num_customers)
    ids = numbered_ids("CUS", num_customers, width=7)
    src, dst = _contacts(order, rng)
    customers = {
        "customer_id": ids,
        "plan": _picked(_PLANS, num_customers, rng),
        "months": pa.array(months),
        "fee": pa.array(np.round(rng.normal(30, 8, num_customers).clip(5), 2)),
        "support_calls": pa.array(rng.poisson(0.3 + 0.4 * trouble)),
        "churned": _yes_no(score > np.quantile(score, 1 - _CHURN_SHARE), rng.random(num_customers) < unknown),
    }
    calls = {
        "caller": ids.take(pa.array(src)),
        "callee": ids.take(pa.array(dst)),
        "minutes": pa.array(np.round(rng.gamma(1.0, 5.0, len(src)), 1)),
        "timestamp": pa.array(rng.integers(0, _YEAR, len(src))),
    }
    return {"customers": pa.table(customers), "calls": pa.table(calls)}


def write_rare(out: str, tables: Tables) -> list[str]:
    """Write tables as Parquet files and return their URIs. Raises StorageError where the folder holds others."""
    refuse_others(out, tuple(f"{name}.parquet" for name in tables))
    uris = {join(out, f"{name}.parquet"): table for name, table in tables.items()}
    for uri, table in uris.items():
        write_table(uri, table)
    return list(uris)


def _contacts(order: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return both ends of each edge [E]. order: the people, whose runs of ten are circles."""
    num_people = len(order)
    src, dst = rng.integers(0, num_people, (2, _EDGES_EACH * num_people))
    first = src // _CIRCLE * _CIRCLE
    mate = np.minimum(first + rng.integers(0, _CIRCLE, len(src)), num_people - 1)
    dst = np.where(rng.random(len(src)) < _IN_CIRCLE_SHARE, mate, dst)
    # nobody pays or calls themselves: the next one does instead
    src = np.where(src == dst, (src + 1) % num_people, src)
    return order[src], order[dst]


def _picked(names: tuple[str, ...], rows: int, rng: np.random.Generator) -> pa.Array:
    return pa.array(names).take(pa.array(rng.integers(0, len(names), rows)))


def _yes_no(values: Array, unknown: Array) -> pa.Array:
    return pa.array(["no", "yes"]).take(pa.array(values.astype(np.int64), mask=unknown))
