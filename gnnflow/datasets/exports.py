"""Tables as people export them to CSV: text ids and categories, dates, gaps, and labels that are blank or yes or no.

`accounts` is one type of node with payments among them; `shop` is users, items, categories and orders with foreign
keys. In both the label follows from the columns only in part; the rest lies in the neighbours: a fraudulent account
pays others of its ring, and a user leaves who bought what others brought back.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gnnflow.datasets.pieces import cumulative, numbered_ids, require
from gnnflow.datasets.tables import refuse_others
from gnnflow.storage.filesystem import join
from gnnflow.storage.writing import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import Array, IntArray

_COUNTRIES = ("DE", "FR", "GB", "US", "IN", "BR", "NL", "PL", "SE", "KE", "VN", "PE")
_CHANNELS = ("card", "transfer", "mobile", "branch")
_DEPARTMENTS = ("home", "garden", "sport", "toys", "food", "books")
_TAGS = ("new", "sale", "vegan", "gift", "heavy", "fragile", "local", "import")
_CITIES = ("Lyon", "Porto", "Gent", "Graz", "Turku", "Split", "Cork", "Brno")
_FRAUD_SHARE, _BLANK_SHARE, _PREMIUM_SHARE, _RING = 0.06, 0.3, 0.2, 12
_IN_RING_SHARE, _ANYWHERE_SHARE, _TAG_SHARE = 0.5, 0.3, 0.2
_FIRST_DAY, _DAYS = np.datetime64("2021-01-01"), 1400


def write_accounts(out: str, *, num_accounts: int = 4_000, seed: int = 0) -> list[str]:
    """Write accounts.csv and payments.csv, with ten payments per account, and return their URIs.

    accounts: account_id, country (blank in places), age (blank in a tenth), balance, opened (date), premium (yes, no),
    fraud (yes, no, blank). payments: payment_id, sender, receiver, amount, channel, paid_at (date and time). Fraudulent
    accounts, 6 %, are rings of about twelve that pay each other. Raises ConfigError below 100 accounts.
    """
    require("num_accounts", num_accounts, 100)
    rng = np.random.default_rng([seed, 1])
    fraud = rng.random(num_accounts) < _FRAUD_SHARE
    ids = numbered_ids("AC", num_accounts, width=6)
    age = np.clip(rng.normal(44 - 4 * fraud, 14), 18, 95).astype(np.int64)
    accounts = {
        "account_id": ids,
        "country": _blanked(_picked(_COUNTRIES, _skewed(len(_COUNTRIES), num_accounts, rng)), 0.03, rng),
        "age": _blanked(pa.array(age), 0.1, rng),
        "balance": pa.array(np.round(np.exp(rng.normal(7 - 0.5 * fraud, 1.2)), 2)),
        "opened": _days(rng.integers(0, _DAYS, num_accounts)),
        "premium": _yes_no(rng.random(num_accounts) < _PREMIUM_SHARE),
        "fraud": _blanked(_yes_no(fraud), _BLANK_SHARE, rng),
    }
    src, dst = _payments(fraud, 10 * num_accounts, rng)
    both = fraud[src] & fraud[dst]
    payments = {
        "payment_id": numbered_ids("P", len(src), width=8),
        "sender": ids.take(pa.array(src)),
        "receiver": ids.take(pa.array(dst)),
        "amount": pa.array(np.round(np.exp(rng.normal(4 + 0.6 * both, 1)), 2)),
        "channel": _picked(_CHANNELS, _skewed(len(_CHANNELS), len(src), rng)),
        "paid_at": _moments(rng.integers(0, _DAYS * 86_400, len(src))),
    }
    return _write(out, {"accounts": accounts, "payments": payments})


def write_shop(out: str, *, num_users: int = 3_000, seed: int = 0) -> list[str]:
    """Write users.csv, items.csv, categories.csv and orders.csv, and return their URIs.

    users: user_id, city, birth_year (blank in places), joined (date), newsletter (yes, no), churned (yes, no, blank).
    items: item_id, title, price, tags (separated by |), category_id (a foreign key, blank in places). categories:
    category_id, name, department. orders: order_id, user_id, item_id, quantity, returned (yes, no), ordered_at (date).
    Users leave more often the more of what they bought others brought back. Raises ConfigError below 100 users.
    """
    require("num_users", num_users, 100)
    rng = np.random.default_rng([seed, 2])
    num_items, num_categories, num_orders = max(num_users // 5, 20), 24, 8 * num_users
    category = rng.integers(0, num_categories, num_items)
    # probability that an item is brought back [items], half of it by its category
    faulty = np.clip(0.5 * rng.beta(0.6, 2.4, num_categories)[category] + 0.5 * rng.beta(0.6, 2.4, num_items), 0, 1)
    # buyer and item of each order [orders]; each user prefers a few categories
    buyer = np.sort(np.r_[np.arange(num_users), rng.integers(0, num_users, num_orders - num_users)])
    item = _preferred(buyer, category, num_categories, rng)
    bought = np.bincount(buyer, faulty[item], num_users) / np.bincount(buyer, minlength=num_users)
    birth = rng.integers(1945, 2006, num_users)
    score = 14 * (bought - bought.mean()) + 0.01 * (birth - 1975) + rng.normal(0, 0.6, num_users)
    churned = score > np.quantile(score, 0.75)
    users, items = numbered_ids("U", num_users, width=6), numbered_ids("I", num_items, width=5)
    categories = numbered_ids("C", num_categories, width=3)
    department = rng.integers(0, len(_DEPARTMENTS), num_categories)
    tables = {
        "users": {
            "user_id": users,
            "city": _picked(_CITIES, _skewed(len(_CITIES), num_users, rng)),
            "birth_year": _blanked(pa.array(birth), 0.08, rng),
            "joined": _days(rng.integers(0, _DAYS, num_users)),
            "newsletter": _yes_no(rng.random(num_users) < 0.4 + 0.1 * churned),
            "churned": _blanked(_yes_no(churned), _BLANK_SHARE, rng),
        },
        "items": {
            "item_id": items,
            "title": pc.binary_join_element_wise(_picked(_DEPARTMENTS, department[category]), items, " "),
            "price": pa.array(np.round(np.exp(rng.normal(3, 0.8, num_items)), 2)),
            "tags": _tags(num_items, rng),
            "category_id": _blanked(categories.take(pa.array(category)), 0.02, rng),
        },
        "categories": {
            "category_id": categories,
            "name": pc.binary_join_element_wise(_picked(_DEPARTMENTS, department), categories, "/"),
            "department": _picked(_DEPARTMENTS, department),
        },
        "orders": {
            "order_id": numbered_ids("O", num_orders, width=7),
            "user_id": users.take(pa.array(buyer)),
            "item_id": items.take(pa.array(item)),
            "quantity": pa.array(rng.geometric(0.6, num_orders)),
            "returned": _yes_no(rng.random(num_orders) < faulty[item]),
            "ordered_at": _days(rng.integers(0, _DAYS, num_orders)),
        },
    }
    return _write(out, tables)


def _payments(fraud: Array, rows: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return sender and receiver of each payment: of a fraudulent sender, half go to its ring [rows] each."""
    src, dst = rng.integers(0, len(fraud), (2, rows))
    members = np.flatnonzero(fraud)
    if len(members) > 1:
        # position of each sender among the fraudulent [rows], and a member of the same run of twelve
        place = np.searchsorted(members, src)
        first = place // _RING * _RING
        last = np.minimum(first + _RING, len(members))
        mate = members[np.minimum(first + (rng.random(rows) * (last - first)).astype(np.int64), len(members) - 1)]
        dst = np.where(fraud[src] & (rng.random(rows) < _IN_RING_SHARE), mate, dst)
    return src, np.where(src == dst, (dst + 1) % len(fraud), dst)


def _preferred(buyer: IntArray, category: IntArray, num_categories: int, rng: np.random.Generator) -> IntArray:
    """Return the item of each order: mostly of the buyer's two categories, else any [orders]."""
    # two categories of each buyer [users, 2], and the items by category in one run
    wanted = rng.integers(0, num_categories, (buyer[-1] + 1, 2))
    order = np.argsort(category, kind="stable")
    count = np.bincount(category, minlength=num_categories)
    first = np.cumsum(count) - count
    chosen = wanted[buyer, rng.integers(0, 2, len(buyer))]
    place = first[chosen] + (rng.random(len(buyer)) * count[chosen]).astype(np.int64)
    same = order[np.minimum(place, len(order) - 1)]
    anywhere = (rng.random(len(buyer)) < _ANYWHERE_SHARE) | (count[chosen] == 0)
    return np.where(anywhere, rng.integers(0, len(category), len(buyer)), same)


def _skewed(values: int, rows: int, rng: np.random.Generator) -> IntArray:
    """Return numbers of values, each half as frequent or so as the one before it [rows]."""
    return np.searchsorted(cumulative(1.0 / np.arange(1, values + 1)), rng.random(rows))


def _picked(names: Sequence[str], numbers: IntArray) -> pa.Array:
    return pa.array(names).take(pa.array(numbers))


def _yes_no(flags: Array) -> pa.Array:
    return _picked(("no", "yes"), flags.astype(np.int64))


def _blanked(values: pa.Array, share: float, rng: np.random.Generator) -> pa.Array:
    """Return the values, a share of them null."""
    return pc.if_else(pa.array(rng.random(len(values)) < share), pa.scalar(None, values.type), values)


def _days(after: IntArray) -> pa.Array:
    return pa.array(_FIRST_DAY + after.astype("timedelta64[D]"))


def _moments(seconds: IntArray) -> pa.Array:
    return pa.array(_FIRST_DAY.astype("datetime64[s]") + seconds.astype("timedelta64[s]"))


def _tags(rows: int, rng: np.random.Generator) -> pa.Array:
    """Return up to three distinct tags of each item as text, separated by |."""
    held = rng.random((rows, len(_TAGS))) < _TAG_SHARE
    parts = [pc.if_else(pa.array(held[:, number]), f"|{tag}", "") for number, tag in enumerate(_TAGS)]
    return pc.utf8_ltrim(pc.binary_join_element_wise(*parts, ""), characters="|")


def _write(out: str, tables: dict[str, dict[str, pa.Array]]) -> list[str]:
    """Write each table as NAME.csv below a folder and return their URIs."""
    names = [f"{name}.csv" for name in tables]
    refuse_others(out, names)
    for name, columns in zip(names, tables.values(), strict=True):
        held = io.BytesIO()
        pyarrow.csv.write_csv(pa.table(columns), held, pyarrow.csv.WriteOptions(quoting_style="needed"))
        write_atomic(join(out, name), held.getvalue())
    return [join(out, name) for name in names]
