"""First mistakes with tables of several types and relations: a row for each."""

from __future__ import annotations

import pyarrow as pa

from tests.stages.mistakes import (
    HALVES,
    IDS,
    ITEMS,
    NUMBERS,
    ROWS,
    SPLIT,
    Change,
    Mistake,
    Tables,
    both,
    column,
    edge_table,
    empty,
    left_out,
    put,
    renamed,
    row_twice,
)

_BUYS = "user__buys__item"
_KEY = "graph.edges.item__in__category"
_LINKS = both(
    put("task", {"kind": "link", "split": {"kind": "random", "valid": 0.3, "test": 0.2}}), put("train.metric", "mrr")
)
_LINKS_OF_BUYS = both(_LINKS, put("graph.target", _BUYS))
_LABELS_OF_BUYS = both(put("task", {"kind": "edge", "split": {"kind": "random"}}), put("graph.target", _BUYS))
_BY_TIME = both(_LINKS_OF_BUYS, put("task.split", {"kind": "time"}))
_WHERE = {"table": "buys.parquet", "where": {"kind": "view"}}


def _swapped(tables: Tables) -> None:
    tables["buys"] = edge_table(ITEMS, IDS)


def _null_id(tables: Tables) -> None:
    tables["category"] = pa.table({"id": ["c0", "c1", None], "size": [1.0, 2.0, 3.0]})


def _other_ids(tables: Tables) -> None:
    tables["category"] = pa.table({"code": ["c0", "c1"], "parent_id": ["c0", "c0"], "size": [1.0, 2.0]})


def _named(name: str) -> Change:
    """Return a change: another name of the relation of who buys what."""
    return both(
        left_out(f"graph.edges.{_BUYS}"), put(f"graph.edges.{name}".replace(".buys.", "/buys/"), "buys.parquet")
    )


TYPED_MISTAKES: dict[str, Mistake] = {
    # types and relations
    "no target": Mistake(
        ("graph.target: required", "item, user", "Name the type"),
        left_out("graph.target"),
        mended=put("graph.target", "user"),
    ),
    "a target that is no type": Mistake(
        ("graph.target: 'users' is not known", "Did you mean 'user'?"),
        put("graph.target", "users"),
        mended=put("graph.target", "user"),
    ),
    "a target without labels": Mistake(
        ("graph.label: the node table of item has no label column 'label'", "set graph.target to the type"),
        put("graph.target", "item"),
        mended=put("graph.target", "user"),
    ),
    "a relation as the target of nodes": Mistake(
        ("graph.target: 'user__buys__item' is a relation", "set task.kind to link"),
        put("graph.target", _BUYS),
        mended=_LINKS,
    ),
    "a relation with a misspelt type": Mistake(
        ("graph.edges.user__buys__itm: 'user__buys__itm' does not join", "Did you mean 'user__buys__item'?"),
        _named("user__buys__itm"),
        mended=both(left_out("graph.edges.user__buys__itm"), put(f"graph.edges.{_BUYS}", "buys.parquet")),
    ),
    "a relation as PyG writes it": Mistake(
        ("does not join two of the node types", "Did you mean 'user__buys__item'?"),
        _named("('user', 'buys', 'item')"),
        mended=both(left_out("graph.edges.('user', 'buys', 'item')"), put(f"graph.edges.{_BUYS}", "buys.parquet")),
    ),
    "a relation with single underscores": Mistake(
        ("graph.edges.user_buys_item: 'user_buys_item' does not join", "Did you mean 'user__buys__item'?"),
        _named("user_buys_item"),
        mended=both(left_out("graph.edges.user_buys_item"), put(f"graph.edges.{_BUYS}", "buys.parquet")),
    ),
    "a relation with dashes": Mistake(
        ("graph.edges.user-buys-item: 'user-buys-item' does not join", "Did you mean 'user__buys__item'?"),
        _named("user-buys-item"),
        mended=both(left_out("graph.edges.user-buys-item"), put(f"graph.edges.{_BUYS}", "buys.parquet")),
    ),
    "relations as a list": Mistake(
        ("graph.edges: [['user', 'buys', 'item']] is not allowed", "{source__relation__target: path}"),
        put("graph.edges", [["user", "buys", "item"]]),
    ),
    "edges as one path": Mistake(
        ("one is a path, the other a map of types", "Give both as paths, or both as maps"),
        put("graph.edges", "buys.parquet"),
    ),
    "a type without table and ids": Mistake(
        ("graph.nodes.shop: is null, and no edge table has ids of this type", "Name its table"),
        put("graph.nodes.shop", None),
        mended=left_out("graph.nodes.shop"),
    ),
    "features of a type without a table": Mistake(
        ("graph.features.category: 'category' is a node type without a table", "leave its features out"),
        put("graph.nodes.category", None),
        mended=left_out("graph.features.category"),
    ),
    "a relation of a type that is not there": Mistake(
        ("'item__in__category' does not join", "give category a table in graph.nodes"),
        both(left_out("graph.nodes.category"), left_out("graph.features.category")),
        mended=put("graph.nodes.category", None),
    ),
    "a target without a table": Mistake(
        ("graph.nodes.user: is null", "Name the table with its labels"),
        put("graph.nodes.user", None),
        mended=put("graph.nodes.user", "user.parquet"),
    ),
    "no edges to the target": Mistake(
        ("no relation leads to user", "Set graph.reverse_edges: true"),
        left_out("graph.edges.user__knows__user"),
        mended=put("graph.reverse_edges", value=True),
    ),
    "a word for true": Mistake(
        ("graph.reverse_edges: 'yes please' is not allowed", "true or false"),
        put("graph.reverse_edges", "yes please"),
        mended=put("graph.reverse_edges", value=True),
    ),
    # tables and keys
    "a missing table of a type": Mistake(
        ("gone.parquet: no such table", "Give a file"), put("graph.nodes.category", "gone.parquet")
    ),
    "an empty table of a type": Mistake(
        ("user.parquet: the table has no rows", "Check graph.nodes.user."), spoil=empty("user")
    ),
    "a foreign key that is not there": Mistake(
        ("item.parquet: has no column 'cat_id' (graph.edges.item__in__category.dst)", "Did you mean 'category_id'?"),
        put(f"{_KEY}.dst", "cat_id"),
        mended=put(f"{_KEY}.dst", "category_id"),
    ),
    "a foreign key of another type": Mistake(
        ("item.parquet: column 'category_id' holds int64 ids", "the same id type"),
        spoil=column("item", "category_id", NUMBERS),
    ),
    "a foreign key of no node": Mistake(
        ("column 'category_id': category_id is not an id of the node table of category", "Add the node"),
        spoil=column("item", "category_id", ["c9", "c0"] * (ROWS // 2)),
        mended=both(put("graph.nodes.category", None), left_out("graph.features.category")),
    ),
    "a misspelt key of an edge table": Mistake(
        ("item__in__category.tabel: unknown key", "Did you mean 'table'?"),
        both(left_out(f"{_KEY}.table"), put(f"{_KEY}.tabel", "item")),
        mended=both(left_out(f"{_KEY}.tabel"), put(f"{_KEY}.table", "item")),
    ),
    "ids of another name beside a foreign key": Mistake(
        ("has no column 'id' (graph.id)", "By its values: `graph: {id: {category: code}}`"),
        spoil=_other_ids,
        mended=put("graph.id", {"category": "code"}),
    ),
    "a table that is no type": Mistake(
        ("graph.edges.item__in__category.table: 'items' is no such table, and no node type", "Did you mean 'item'?"),
        put(f"{_KEY}.table", "items"),
        mended=put(f"{_KEY}.table", "item"),
    ),
    "a key that edge tables have not": Mistake(
        ("item__in__category.source: unknown key", "Keys here: table, src, dst, where."),
        put(f"{_KEY}.source", "id"),
        mended=left_out(f"{_KEY}.source"),
    ),
    "a filter by a column that is not there": Mistake(
        ("has no column 'knd' (graph.edges.item__in__category.where)", "Did you mean 'kind'?"),
        put(f"{_KEY}.where", {"knd": "a"}),
        mended=put(f"{_KEY}.where", {"kind": "a"}),
    ),
    "a filter as an equation": Mistake(
        ("item__in__category.where: \"kind = 'a'\" is not allowed: must be a mapping", "Write {kind: a}."),
        put(f"{_KEY}.where", "kind = 'a'"),
        mended=put(f"{_KEY}.where", {"kind": "a"}),
    ),
    "a misspelt value of a filter": Mistake(
        ("item__in__category.where: no row has 'bb' in column 'kind'", "Did you mean 'b'? It has a, b."),
        put(f"{_KEY}.where", {"kind": ["a", "bb"]}),
        mended=put(f"{_KEY}.where", {"kind": ["a", "b"]}),
    ),
    "a filter that no target passes": Mistake(
        ("where: no row has 'view' in column 'kind'", "It has buy."),
        both(_LINKS_OF_BUYS, put(f"graph.edges.{_BUYS}", _WHERE)),
        column("buys", "kind", ["buy"] * ROWS),
    ),
    # ids and ends
    "ids of one type of another name": Mistake(
        ("item.parquet: has no column 'id'", "graph.id: {item: COLUMN}"),
        put(f"{_KEY}.src", "item_id"),
        renamed("item", "id", "item_id"),
        mended=put("graph.id", {"item": "item_id"}),
    ),
    "ends of one relation of another name": Mistake(
        ("knows.parquet: has no column 'dst'", "graph.dst: {user__knows__user: COLUMN}"),
        spoil=renamed("knows", "dst", "friend"),
        mended=put("graph.dst", {"user__knows__user": "friend"}),
    ),
    "a name for a type that is none": Mistake(
        ("graph.id.items: 'items' is not known", "Did you mean 'item'?"),
        put("graph.id", {"items": "id"}),
        mended=put("graph.id", {"item": "id"}),
    ),
    "ends in each other's place": Mistake(
        ("buys.parquet", "the ends are swapped", "graph.src: {user__buys__item: dst}"),
        spoil=_swapped,
        mended=both(put("graph.src", {_BUYS: "dst"}), put("graph.dst", {_BUYS: "src"})),
    ),
    "an end that is no node of its type": Mistake(
        ("buys.parquet", "dst is not an id of the node table of item", "Add the node"),
        spoil=column("buys", "dst", ["i99"] * ROWS),
    ),
    "ids as text in one table": Mistake(
        ("buys.parquet: column 'dst' holds int64 ids", "of the node table of item holds string"),
        spoil=column("buys", "dst", NUMBERS),
    ),
    "an id twice in a type": Mistake(
        ("user.parquet", "id appears more than once", "Keep one row per id"), spoil=row_twice("user")
    ),
    "a null id": Mistake(
        ("category.parquet", "null id", "Give every row an id"),
        spoil=_null_id,
    ),
    # features and attributes
    "features of no type": Mistake(
        ("graph.features.usr: 'usr' is not known", "Did you mean 'user'?"),
        put("graph.features.usr", ["age"]),
        mended=left_out("graph.features.usr"),
    ),
    "a feature that its type has not": Mistake(
        ("item.parquet: has no column 'pric' (graph.features.item)", "Did you mean 'price'?"),
        put("graph.features.item", ["pric"]),
        mended=put("graph.features.item", ["price"]),
    ),
    "no table has a shared feature": Mistake(
        ("graph.features: no node table has any of the columns", "or give {type: columns}"),
        put("graph.features", ["volume"]),
        mended=put("graph.features", ["age"]),
    ),
    "a pattern of nothing in a type": Mistake(
        ("graph.features: no column matches 'amt_*'", "take it out"), put("graph.features.item", ["amt_*"])
    ),
    "the label as a feature of its type": Mistake(
        ("graph.features.user: 'label' is the column of graph.label", "Take it out of the list"),
        put("graph.features.user", ["age", "label"]),
        mended=put("graph.features.user", ["age"]),
    ),
    "the id as a feature": Mistake(
        ("graph.features.item: 'id' is the column of graph.id", "Take it out of the list"),
        put("graph.features.item", ["price", "id"]),
        mended=put("graph.features.item", ["price"]),
    ),
    "a kind for a column of no type": Mistake(
        ("graph.columns.items.kind: 'items.kind' is not among", "Did you mean 'item.kind'?"),
        both(put("graph.features.item", ["kind"]), put("graph.columns", {"items.kind": {"kind": "categorical"}})),
        mended=put("graph.columns", {"item.kind": {"kind": "categorical"}}),
    ),
    "a kind of one type's column": Mistake(
        ("column 'age' is double, not dates or times", "Set graph: {columns: {user.age: {kind: numerical}}}."),
        put("graph.columns", {"user.age": {"kind": "timestamp"}}),
        mended=put("graph.columns", {"user.age": {"kind": "numerical"}}),
    ),
    "a structure as a feature": Mistake(
        ("item.parquet: column 'box' is struct", "or leave it out"),
        put("graph.features.item", ["box"]),
        column("item", "box", [{"width": 1}] * ROWS),
    ),
    "shares of text": Mistake(
        ("column 'country' is categorical, and graph.normalize: row", "Set graph.normalize to standard"),
        both(put("graph.normalize", "row"), put("graph.features.user", ["age", "country"])),
        mended=put("graph.normalize", "standard"),
    ),
    "an attribute that no relation has": Mistake(
        ("graph.edge_features: no edge table has a column 'size'", "{relation: columns}"),
        put("graph.edge_features", ["size"]),
        mended=put("graph.edge_features", ["amount"]),
    ),
    "an attribute that its relation has not": Mistake(
        ("buys.parquet: has no column 'amnt'", "Did you mean 'amount'?"),
        put("graph.edge_features", {_BUYS: ["amnt"]}),
        mended=put("graph.edge_features", {_BUYS: ["amount"]}),
    ),
    "a weight that is no number": Mistake(
        ("buys.parquet", "'weight': weight is null, NaN", "Fill, scale or drop"),
        spoil=column("buys", "weight", [float("nan")] * ROWS),
    ),
    # tasks, labels and models
    "no row in valid": Mistake(
        ("user.parquet: column 'split': no row is in split 'valid'", "Training needs train and valid rows"),
        spoil=column("user", "split", ["train", "test"] * 10),
        mended=put("task.split", {"kind": "random", "valid": 0.3}),
    ),
    "labels of a type that are all null": Mistake(
        ("user.parquet: column 'label' is empty in every row", "Write the labels"),
        spoil=column("user", "label", pa.nulls(ROWS)),
    ),
    "one class of a type in train": Mistake(
        ("the train split: every train row has class 0", "task.split: {kind: random}"),
        spoil=column("user", "label", [int(name != "train") for name in SPLIT]),
        mended=put("task.split", {"kind": "random", "valid": 0.3}),
    ),
    "a split of another name": Mistake(
        ("graph.split: the node table of user has no split column 'fold'", "set task.split to {kind: random}"),
        put("graph.split", "fold"),
        mended=put("task.split", {"kind": "random", "valid": 0.3}),
    ),
    "links of no relation": Mistake(
        (
            "graph.target: 'user' is a type of nodes, where task.kind is link",
            "one of item__in__category, user__buys__item",
        ),
        _LINKS,
        mended=put("graph.target", _BUYS),
    ),
    "links by the metric of nodes": Mistake(
        ("train.metric: accuracy is not defined for links", "mrr"),
        both(_LINKS_OF_BUYS, put("train.metric", "accuracy")),
        mended=put("train.metric", "mrr"),
    ),
    "links of a relation without edges": Mistake(
        ("buys.parquet: the table has no rows", "Check graph.edges.user__buys__item."), _LINKS_OF_BUYS, empty("buys")
    ),
    "labels of edges without a column": Mistake(
        ("buys.parquet: has no column 'label' (graph.label, where task.kind is edge)", "Set graph.label"),
        _LABELS_OF_BUYS,
    ),
    "splits of edges without a column": Mistake(
        ("buys.parquet: has no column 'split'", "task.split to {kind: random}"),
        both(_LABELS_OF_BUYS, put("task.split", {"kind": "column"})),
        column("buys", "label", [0, 1] * 10),
        mended=put("task.split", {"kind": "random", "valid": 0.3}),
    ),
    "times that are no dates": Mistake(
        ("buys.parquet", "column 'timestamp' is text, not a time", "2024-01-31"),
        _BY_TIME,
        column("buys", "timestamp", ["soon"] * ROWS),
    ),
    "times of another name": Mistake(
        ("buys.parquet: has no column 'timestamp'", f"`graph: {{timestamp: {{{_BUYS}: paid_at}}}}`"),
        _BY_TIME,
        column("buys", "paid_at", [f"2024-01-{1 + number:02}" for number in NUMBERS]),
        mended=put("graph.timestamp", {_BUYS: "paid_at"}),
    ),
    "one time for all": Mistake(
        ("buys.parquet: no edge is in split 'train'", "Rows of one time are in one split", "{kind: random}"),
        _BY_TIME,
        column("buys", "timestamp", [5] * ROWS),
        mended=put("task.split", {"kind": "random", "valid": 0.3}),
    ),
    "hops of other layers": Mistake(
        ("flat.hops: 1 is not allowed", "layers"), put("flat.hops", 1), mended=put("flat.hops", 2)
    ),
    "fan-outs for some relations": Mistake(
        ("neighbors.sampling.fanout: has no list for item__in__category", "or give one list for all"),
        put("neighbors.sampling", {"kind": "uniform", "fanout": {_BUYS: [5, 5], "user__knows__user": [5, 5]}}),
        mended=put("neighbors.sampling.fanout", [5, 5]),
    ),
    "edge attention without attributes": Mistake(
        ("model.kind: gat_e reads edge attributes", "in graph.edge_features, or choose gat"),
        put("model.kind", "gat_e"),
        mended=put("model.kind", "gat"),
    ),
    "a path against the edges": Mistake(
        ("neighbors.paths: ['user', 'item', 'user'] steps from", "Set graph.reverse_edges: true"),
        put("neighbors", {"kind": "metapaths", "paths": [["user", "item", "user"]]}),
        mended=put("graph.reverse_edges", value=True),
    ),
    "numbers of a type as classes": Mistake(
        ("user.parquet: column 'label' holds floats, numbers to predict", "for numbers set train.metric: mae"),
        put("train.metric", "accuracy"),
        spoil=column("user", "label", HALVES),
        mended=put("train.metric", "mae"),
    ),
}
