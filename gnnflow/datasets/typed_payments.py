"""A payments network of accounts, devices and merchants, where shared devices and merchants reveal fraud.

Fraud comes in two kinds. A farm is many accounts on few devices; a front is a merchant that many accounts pay to hide
money. Ordinary accounts share devices and merchants as well, and the devices and merchants of fraud are used about as
much as others, so that degrees say little. Each kind leaves a faint mark on an account's features: one account's mark
says little, but the average over the accounts of a device or of a merchant reveals them. Farms are found through
devices alone and fronts through merchants alone, so a model needs both relations. Transfers within a kind of fraud are
slightly larger and earlier in the day than others; the features of merchants are noise. A payment is illicit where a
front's account pays a front; edges have this as a label, for tasks of edges.

Shapes: P accounts, D devices, M merchants; E edges of a relation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gnnflow.datasets.pieces import cumulative, labelled_columns, numbered_ids, require
from gnnflow.datasets.tables import TypedGraphTables, save_tables
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.storage.columns import from_matrix

SENDS, PAYS, USES = "account__sends__account", "account__pays__merchant", "account__uses__device"
TRANSFER_ATTRIBUTES = ("amount", "hour_sin", "hour_cos")

_ORDINARY, _FARM, _FRONT = range(3)
_FARM_SHARE = _FRONT_SHARE = 0.15  # of the accounts
_DEVICE_SHARE, _MERCHANT_SHARE = 0.2, 0.1  # of the nodes
_SENDS_SHARE, _PAYS_SHARE = 0.35, 0.35  # of the edges
_WIDTH, _MERCHANT_WIDTH = 8, 4
# Means of the first features by kind of account; the others are noise of the same variance.
_SIGNAL = np.array([[0.0, 0.0], [0.8, 0.2], [0.2, 0.8]], np.float32)
_DEVOTION = 0.9  # share of a farm account's uses on farm devices, and of a front account's payments to fronts
_STRAY = 0.05  # the same share for all other accounts
_WITHIN = 0.3  # of the transfers to an account of fraud from its own kind
_NODE_STREAM, _SENDS_STREAM, _PAYS_STREAM, _USES_STREAM = range(5, 9)


@dataclass(frozen=True)
class _Pool:
    """Devices or merchants `order` [N] with their `popularity` [N]; the first num_marked belong to fraud."""

    order: IntArray
    num_marked: int
    popularity: Array

    def draw(self, marked: Array, rng: np.random.Generator) -> IntArray:
        """Return a member of the pool for each row [E], one of fraud where marked [E] is true."""
        chance = rng.random(len(marked))
        fraud = np.searchsorted(cumulative(self.popularity[: self.num_marked]), chance)
        other = self.num_marked + np.searchsorted(cumulative(self.popularity[self.num_marked :]), chance)
        return self.order[np.where(marked, fraud, other)]


def typed_payments(*, num_nodes: int = 20_000, num_edges: int = 200_000, seed: int = 0) -> TypedGraphTables:
    """Return the network as typed tables, in memory: the same arguments give the same rows.

    Nodes: account (id, x of 8 float32, label: 0 ordinary, 1 fraud, null for a fifth, split: 60/20/20 of the
    labelled), device (id, no features) and merchant (id, x of 4 float32).
    Edges: account__sends__account (src, dst, amount, hour_sin, hour_cos, weight >= 1), account__pays__merchant (src,
    dst, illicit: 0 or 1) and account__uses__device (src, dst). Parallel edges occur. Raises ConfigError below 100 nodes
    or 100 edges.
    """
    require("num_nodes", num_nodes, 100)
    require("num_edges", num_edges, 100)
    rng = np.random.default_rng([seed, _NODE_STREAM])
    num_devices, num_merchants = int(num_nodes * _DEVICE_SHARE), int(num_nodes * _MERCHANT_SHARE)
    num_accounts = num_nodes - num_devices - num_merchants
    kind = _kinds(num_accounts, rng)
    width = max(7, len(str(num_accounts)))
    accounts = numbered_ids("ACC", num_accounts, width=width)
    devices = numbered_ids("DEV", num_devices, width=width)
    merchants = numbered_ids("MER", num_merchants, width=width)
    screens = _pool(num_devices, np.ones(num_devices), _FARM_SHARE, rng)
    # the popularity of merchants follows a power law, so that a few are hubs
    shops = _pool(num_merchants, rng.permutation(np.arange(1, num_merchants + 1) ** -0.6), _FRONT_SHARE, rng)

    num_sends, num_pays = int(num_edges * _SENDS_SHARE), int(num_edges * _PAYS_SHARE)
    uses = _visits(num_edges - num_sends - num_pays, kind == _FARM, screens, [seed, _USES_STREAM])
    pays = _visits(num_pays, kind == _FRONT, shops, [seed, _PAYS_STREAM])
    noise = from_matrix(rng.standard_normal((num_merchants, _MERCHANT_WIDTH), np.float32))
    return TypedGraphTables(
        nodes={
            "account": _accounts(accounts, kind, rng),
            "device": pa.table({"id": devices}),
            "merchant": pa.table({"id": merchants, "x": noise}),
        },
        edges={
            SENDS: _transfers(accounts, num_sends, kind, seed),
            PAYS: _named(accounts, merchants, *pays).append_column("illicit", _illicit(kind, shops, *pays)),
            USES: _named(accounts, devices, *uses),
        },
    )


def write_typed_payments(
    out: str, *, num_nodes: int = 20_000, num_edges: int = 200_000, seed: int = 0
) -> dict[str, Any]:
    """Write the tables `typed_payments` returns below a folder; returns the `graph` section of a config for them.

    Edges lead from accounts alone, so the section asks for their reverse, which leads to accounts.
    """
    tables = typed_payments(num_nodes=num_nodes, num_edges=num_edges, seed=seed)
    save_tables(tables, out)
    attributes = {"edge_features": list(TRANSFER_ATTRIBUTES), "reverse_edges": True}
    return {**tables.uris(out), "target": "account", **attributes}


def _kinds(num_accounts: int, rng: np.random.Generator) -> IntArray:
    # exact shares, so that no kind is missing from a small network
    counts = int(num_accounts * _FARM_SHARE), int(num_accounts * _FRONT_SHARE)
    return rng.permutation(np.repeat([_FARM, _FRONT, _ORDINARY], [*counts, num_accounts - sum(counts)]))


def _pool(count: int, popularity: Array, fraud_share: float, rng: np.random.Generator) -> _Pool:
    """Return a pool whose share of fraud equals its share of edges, so that its members are used like others."""
    share = fraud_share * _DEVOTION + (1 - fraud_share) * _STRAY
    return _Pool(rng.permutation(count), max(1, round(share * count)), popularity)


def _accounts(ids: pa.Array, kind: IntArray, rng: np.random.Generator) -> pa.Table:
    x = rng.standard_normal((len(ids), _WIDTH), np.float32)
    x[:, : _SIGNAL.shape[1]] += _SIGNAL[kind]
    labels = labelled_columns((kind != _ORDINARY).astype(np.int64), others=0, rng=rng)
    return pa.table({"id": ids, "x": from_matrix(x), **labels})


def _visits(num_edges: int, devoted: Array, pool: _Pool, stream: list[int]) -> tuple[IntArray, IntArray]:
    """Return accounts [E] and members of the pool [E]: every account once, as far as edges go, then random ones."""
    rng = np.random.default_rng(stream)
    edge = np.arange(num_edges)
    account = np.where(edge < len(devoted), edge, rng.integers(0, len(devoted), num_edges))
    marked = rng.random(num_edges) < np.where(devoted[account], _DEVOTION, _STRAY)
    return account, pool.draw(marked, rng)


def _illicit(kind: IntArray, shops: _Pool, account: IntArray, merchant: IntArray) -> pa.Array:
    """Return 1 for payments that hide money, else 0 [E]."""
    fronts = np.zeros(len(shops.order), bool)
    fronts[shops.order[: shops.num_marked]] = True
    return pa.array(((kind[account] == _FRONT) & fronts[merchant]).astype(np.int64))


def _named(sources: pa.Array, targets: pa.Array, src: IntArray, dst: IntArray) -> pa.Table:
    return pa.table({"src": sources.take(pa.array(src)), "dst": targets.take(pa.array(dst))})


def _transfers(ids: pa.Array, num_edges: int, kind: IntArray, seed: int) -> pa.Table:
    rng = np.random.default_rng([seed, _SENDS_STREAM])
    activity = cumulative(rng.lognormal(0.0, 0.7, len(kind)))
    src = np.searchsorted(activity, rng.random(num_edges))
    dst = rng.integers(0, len(kind), num_edges)
    within = (kind[dst] != _ORDINARY) & (rng.random(num_edges) < _WITHIN)
    for fraud in (_FARM, _FRONT):
        rows = np.flatnonzero(within & (kind[dst] == fraud))
        src[rows] = rng.choice(np.flatnonzero(kind == fraud), len(rows))
    # No account sends to itself: the next one sends instead.
    src = np.where(src == dst, (src + 1) % len(kind), src)
    noise = rng.standard_normal((2, num_edges), np.float32)
    hour = np.where(within, np.float32(9), np.float32(14)) + np.float32(4) * noise[1]
    angle = hour * np.float32(2 * np.pi / 24)
    amount = noise[0] + np.float32(0.7) * within
    attributes = dict(zip(TRANSFER_ATTRIBUTES, (amount, np.sin(angle), np.cos(angle)), strict=True))
    attributes["weight"] = rng.geometric(0.6, num_edges).astype(np.float32)
    return pa.table({"src": ids.take(pa.array(src)), "dst": ids.take(pa.array(dst)), **attributes})
