from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from gnnflow.datasets import write_accounts, write_shop
from gnnflow.graph.errors import ConfigError

TEXT = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=True)


@pytest.fixture(scope="module")
def accounts(tmp_path_factory):
    return read(write_accounts(str(tmp_path_factory.mktemp("accounts")), num_accounts=3_000))


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return read(write_shop(str(tmp_path_factory.mktemp("shop")), num_users=2_000))


def read(uris):
    tables = {uri.rsplit("/", 1)[1].removesuffix(".csv"): uri for uri in uris}
    return {name: pyarrow.csv.read_csv(uri, convert_options=TEXT).combine_chunks() for name, uri in tables.items()}


def rows_of(keys, column):
    return pc.index_in(column, keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys)


def auc(columns, label):
    """Return the area under the ROC curve of trees, trained on the first 60 % of the labelled rows."""
    known = np.flatnonzero(np.asarray(pc.is_valid(label)))
    truth = np.asarray(pc.equal(label, "yes").fill_null(False))[known].astype(int)
    cut = int(0.6 * len(known))
    with threadpool_limits(1):
        trees = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(columns[known[:cut]], truth[:cut])
        return roc_auc_score(truth[cut:], trees.predict_proba(columns[known[cut:]])[:, 1])


def mean_by(target, values, rows):
    """Return the mean of values by target, NaN where there are none."""
    count = np.bincount(target, minlength=rows)
    with np.errstate(invalid="ignore"):
        return np.bincount(target, values, rows) / count


def numbers(column):
    return np.asarray(pc.cast(column, pa.float64()).fill_null(np.nan))


def test_the_same_seed_gives_the_same_files_and_another_seed_others(tmp_path):
    held = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        uris = [
            *write_accounts(str(tmp_path / name), num_accounts=200, seed=seed),
            *write_shop(str(tmp_path / f"{name}s"), num_users=200, seed=seed),
        ]
        held[name] = [Path(uri).read_bytes() for uri in uris]
    assert held["a"] == held["b"]
    assert all(one != other for one, other in zip(held["a"], held["c"], strict=True))


def test_too_few_rows_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="below the minimum of 100"):
        write_accounts(str(tmp_path), num_accounts=20)


def test_keys_lead_to_rows_and_columns_have_gaps(accounts, shop):
    ids = accounts["accounts"]["account_id"]
    assert all(rows_of(ids, accounts["payments"][end]).null_count == 0 for end in ("sender", "receiver"))
    assert not pc.any(pc.equal(accounts["payments"]["sender"], accounts["payments"]["receiver"])).as_py()
    for key, table in (("user_id", "users"), ("item_id", "items")):
        assert rows_of(shop[table][key], shop["orders"][key]).null_count == 0
    named = shop["items"]["category_id"].drop_null()
    assert rows_of(shop["categories"]["category_id"], named).null_count == 0
    for table, column in (("accounts", "age"), ("accounts", "country"), ("accounts", "fraud")):
        assert 0 < accounts[table][column].null_count < 0.4 * accounts[table].num_rows
    assert 0 < shop["items"]["category_id"].null_count < 0.1 * shop["items"].num_rows


def test_neighbours_tell_more_than_the_columns(accounts, shop):
    table, payments = accounts["accounts"], accounts["payments"]
    own = np.stack([numbers(table["age"]), np.log(numbers(table["balance"]))], 1)
    src, dst = (rows_of(table["account_id"], payments[end]).to_numpy() for end in ("sender", "receiver"))
    near = np.stack(
        [mean_by(dst, np.log(numbers(payments["amount"])), len(own)), mean_by(src, own[dst, 1], len(own))], 1
    )
    alone, together = auc(own, table["fraud"]), auc(np.c_[own, near], table["fraud"])
    assert together > alone + 0.03, (alone, together)
    users, orders = shop["users"], shop["orders"]
    born = numbers(users["birth_year"])[:, None]
    buyer, item = rows_of(users["user_id"], orders["user_id"]), rows_of(shop["items"]["item_id"], orders["item_id"])
    returned = np.asarray(pc.equal(orders["returned"], "yes")).astype(float)
    # share of an item's orders that were brought back, and its mean over what each user bought
    share = mean_by(item.to_numpy(), returned, shop["items"].num_rows)
    near = mean_by(buyer.to_numpy(), share[item.to_numpy()], len(born))[:, None]
    alone, together = auc(born, users["churned"]), auc(np.c_[born, near], users["churned"])
    assert together > alone + 0.1, (alone, together)
