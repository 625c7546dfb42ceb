"""The `graph` section: what its keys mean for one table, and the checks of all keys; `graph_keys.py` has the keys."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from gnnflow.config.base import problem, together
from gnnflow.config.column_names import input_problems, one_name, own_name
from gnnflow.config.columns_section import ColumnSection, expanded, is_pattern
from gnnflow.config.formats_section import format_problems
from gnnflow.config.graph_keys import GraphKeys
from gnnflow.config.messages import closest, nearest
from gnnflow.config.typed_tables import typed_table_problems
from gnnflow.graph.schema import Relation

# The keys that name columns of node tables, and of edge tables.
_OF_NODES = ("id", "label", "split")
_OF_EDGES = ("src", "dst", "label", "split", "timestamp", "weight")
_LABEL = "label"
# How node features are stored as steps of a column's range.
_STEPPED = ("int8", "int4")


class GraphConfig(GraphKeys):
    """Input tables and the layout of the graph store."""

    def features_of(self, node_type: str) -> tuple[str, ...]:
        """Return the feature columns asked of a type's table."""
        return self.features.get(node_type, ()) if isinstance(self.features, Mapping) else self.features

    def has_degree_features(self, node_type: str) -> bool:
        """Return whether a type's nodes have their degrees as columns."""
        held = self.degree_features
        return held.get(node_type, False) if isinstance(held, Mapping) else held

    def edge_features_of(self, relation: Relation) -> tuple[str, ...]:
        """Return the attribute columns asked of a relation's table."""
        held = self.edge_features
        if isinstance(held, Mapping):
            return held.get(str(relation), ())
        return () if self.is_node_table(relation) else held  # those columns are the node's

    def feature_names(self, node_type: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the feature columns asked of a type's table, with the columns that patterns match in `names`."""
        taken = self.taken_columns(node_type)
        return expanded(self.features_of(node_type), names, taken=taken, exclude=self.exclude)

    def taken_columns(self, table: str | Relation) -> set[str]:
        """Return the columns of a type's or a relation's table that have another role than a model's inputs."""
        if isinstance(table, str):
            of_type = self.of_type(table)
            roles = {of_type.id_column, of_type.label_column or _LABEL, of_type.split_column}
            return roles | {*self._foreign_keys(table)}
        own = self.of_relation(table)
        roles = {own.src_column, own.dst_column, own.weight_column, own.time_column}
        return roles | {own.label_column or _LABEL, own.split_column}

    def _foreign_keys(self, node_type: str) -> Iterator[str]:
        """Yield the columns of a type's table that are the ends of some relation."""
        for relation in self.edge_tables:
            table = self.edge_table_of(relation)
            if table is not None and self._location(table) == self.node_tables[node_type]:
                yield from (name for name in (table.src, table.dst) if name is not None)

    def edge_feature_names(self, relation: Relation, names: Sequence[str]) -> tuple[str, ...]:
        """Return the attribute columns asked of a relation's table, as `feature_names`."""
        taken = self.taken_columns(relation)
        return expanded(self.edge_features_of(relation), names, taken=taken, exclude=self.exclude)

    def column_owner(self, name: str | Relation, untyped: str) -> str:
        """Return what stands before a column's name in `columns`: its type or relation, or `untyped` without types."""
        return self.schema.name_of(name) or untyped

    def column_section(self, owner: str, column: str) -> ColumnSection | None:
        """Return the section of a column, None where there is none.

        owner: its type or relation, `nodes` or `edges` without types.
        """
        return self.columns.get(self.column_key(owner, column))

    def column_key(self, owner: str, column: str) -> str:
        """Return the key of a column in `columns`: with its owner where it is there, else its name alone."""
        own = f"{owner}.{column}"
        return own if own in self.columns else column

    def of_type(self, node_type: str) -> Self:
        """Return the section as a type's table is read by it, with one name for each of its columns."""
        return self._own(node_type, _OF_NODES)

    def of_relation(self, relation: Relation) -> Self:
        """Return the section as a relation's table is read by it, with one name for each of its columns."""
        own, table = self._own(str(relation), _OF_EDGES), self.edge_table_of(relation)
        if table is None:
            return own
        update = {key: name for key, name in (("src", table.src), ("dst", table.dst)) if name is not None}
        if self.is_node_table(relation) and isinstance(self.weight, str):
            update["weight"] = ""  # that column is the node's
        return own.model_copy(update=update)

    def of_targets(self, *, edges: bool) -> Self:
        """Return the section of the table whose rows are labelled, nodes or edges."""
        return self.of_relation(self.target_edges) if edges else self.of_type(self.schema.types[self.target_type])

    def _own(self, table: str, keys: Sequence[str]) -> Self:
        maps = {key: getattr(self, key) for key in keys if isinstance(getattr(self, key), Mapping)}
        own = {key: own_name(names, table, default=key) for key, names in maps.items()}
        return self.model_copy(update=own) if own else self

    @property
    def id_column(self) -> str:
        """The column of ids, in a section of one table, as are the following ones."""
        return one_name(self.id)

    @property
    def src_column(self) -> str:
        """The column of sources."""
        return one_name(self.src)

    @property
    def dst_column(self) -> str:
        """The column of destinations."""
        return one_name(self.dst)

    @property
    def label_column(self) -> str:
        """The column of labels; empty, which is no column's name, where no labels are read."""
        return one_name(self.label)

    @property
    def split_column(self) -> str:
        """The column of splits."""
        return one_name(self.split)

    @property
    def time_column(self) -> str:
        """The column of times."""
        return one_name(self.timestamp)

    @property
    def weight_column(self) -> str:
        """The column of weights."""
        return one_name(self.weight)

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        # the other checks read types and relations
        found = [*typed_table_problems(self.nodes, self.edges, has_reverses=bool(self.reverses))]
        if not found:
            found = [*self._class_problems(), *self._role_problems(), *self._section_problems()]
            found += self._made_problems()
            found += [*format_problems(self.formats, self._places), *self._name_problems()]
        if found:
            raise together(found)
        return self

    def _class_problems(self) -> Iterator[PydanticCustomError]:
        names = self.classes if isinstance(self.classes, tuple) else ()
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            yield problem(f"{twice!r} is there twice", key="classes", fix="Give each class another name.")
        if names and self.num_classes not in {None, len(names)}:
            yield problem(
                f"{self.num_classes}, and graph.classes names {len(names)}", key="num_classes", fix="Leave it out."
            )

    def _role_problems(self) -> Iterator[PydanticCustomError]:
        nodes = {name: self.of_type(name) for name in self.node_tables}
        edges = {str(name): self.of_relation(name) for name in self.edge_tables}
        for kind, roles, features, tables in (
            ("features", ("id",), self.features, nodes),  # `checks.tasks` looks at labels and splits
            ("edge_features", ("src", "dst"), self.edge_features, edges),
        ):
            listed = {"": features} if isinstance(features, tuple) else features
            for name, columns in listed.items():
                if name and name not in tables:
                    continue
                of = [tables[name]] if name in tables else tables.values()
                taken = {role: [getattr(each, role) for each in of] for role in roles}
                yield from input_problems(f"{kind}.{name}".rstrip("."), columns, taken)
        for read, tables in ((_OF_NODES, nodes), (("src", "dst", "weight"), edges)):
            for (name, own), (key, other) in product(tables.items(), combinations(reversed(read), 2)):
                column = getattr(own, key)
                if column == getattr(own, other):
                    yield problem(
                        f"{column!r} is the column of graph.{other} too",
                        key=key if getattr(self, key) == column else f"{key}.{name}",
                        fix="Name another column: each is read for one thing.",
                    )

    def _section_problems(self) -> Iterator[PydanticCustomError]:
        listed = {"nodes": self.features} if isinstance(self.features, tuple) else dict(self.features)
        listed |= {"edges": self.edge_features} if isinstance(self.edge_features, tuple) else dict(self.edge_features)
        named = {column for columns in listed.values() for column in columns}
        typed = [] if isinstance(self.nodes, str) else [*self.nodes]
        typed += [] if isinstance(self.edges, str) else [*self.edges]
        named |= {f"{owner}.{column}" for owner, columns in listed.items() for column in columns}
        named |= {f"{owner}.{column}" for owner in typed for column in named} if typed else set()
        patterns = [*filter(is_pattern, named)]
        left_out = [*self.exclude, *(f"*.{each}" for each in self.exclude)]
        for name in self.columns:
            if name not in named and not expanded(patterns, [name], taken=(), exclude=left_out):
                fix = "Name the column in one of these lists, or take it out of graph.columns."
                yield problem(
                    f"{name!r} is not among the columns of graph.features or graph.edge_features",
                    key=f"columns.{name}",
                    fix=f"{_nearest_input(name, listed, named)} {fix}".strip(),
                )

    def _made_problems(self) -> Iterator[PydanticCustomError]:
        """Yield the problems of features that no table holds."""
        columns = self.features if isinstance(self.features, Mapping) else {}
        for name in self.id_embeddings:
            if columns.get(name) or self.has_degree_features(name):
                key = f"graph.features.{name}" if columns.get(name) else "graph.degree_features"
                yield problem(
                    f"the type has columns of {key}",
                    key=f"id_embeddings.{name}",
                    fix=f"Leave the type out here, or out of {key}: its nodes have columns or vectors of their ids.",
                )
        if self.storage in _STEPPED and any(map(self.has_degree_features, self.node_tables)):
            yield problem(
                f"not allowed where graph.storage is {self.storage}: the steps between a column's smallest and largest "
                "number are fixed before degrees are known",
                key="degree_features",
                fix="Set graph.storage to float32, float16 or bfloat16, or leave this key out.",
            )

    def _name_problems(self) -> Iterator[PydanticCustomError]:
        types = [] if isinstance(self.nodes, str) else sorted(self.nodes)
        relations = [] if isinstance(self.edges, str) else sorted(self.edges)
        if len(types) > 1 and self.target is None:
            yield problem(
                f"required but missing, where graph.nodes has the types {', '.join(types)}",
                key="target",
                fix="Name the type whose nodes are labelled and scored, or the relation whose edges are.",
            )
        named: dict[str, tuple[str, str, list[str]]] = {}
        if self.target is not None and self.target not in relations:
            names_edges = Relation.parse(self.target) is not None
            named["target"] = (self.target, "edges", relations) if names_edges else (self.target, "nodes", types)
        for key, columns, of, known in (
            ("features", self.features, "nodes", types),
            ("degree_features", self.degree_features, "nodes", types),
            ("id_embeddings", self.id_embeddings, "nodes", types),
            ("edge_features", self.edge_features, "edges", relations),
        ):
            named |= {f"{key}.{name}": (name, of, known) for name in columns} if isinstance(columns, dict) else {}
        for key in (*_OF_NODES, *_OF_EDGES):
            is_either, of = key in _OF_NODES and key in _OF_EDGES, "nodes" if key in _OF_NODES else "edges"
            known = [*types, *relations] if is_either else types if of == "nodes" else relations
            columns = getattr(self, key)
            named |= {f"{key}.{name}": (name, of, known) for name in columns} if isinstance(columns, dict) else {}
        for key, (name, of, known) in named.items():
            if name not in known:
                found = f"graph.{of} has {', '.join(known)}" if known else f"graph.{of} is one table, without types"
                fix, near = "Name one of these, or leave it out." if known else "Leave it out.", closest(name, known)
                is_free = key == "target" or near not in getattr(self, key.partition(".")[0])
                meant = {"value" if key == "target" else "name": near} if near and is_free else None
                fix = f"{nearest(name, known)} {fix}".strip()
                yield problem(f"{name!r} is not known: {found}", key=key, fix=fix, meant=meant)
        bare = set() if isinstance(self.nodes, str) else {name for name, uri in self.nodes.items() if uri is None}
        for name, columns in self.features.items() if isinstance(self.features, dict) else ():
            if name in bare and columns and name != self.target:  # the target needs a table anyway
                yield problem(
                    f"{name!r} is a node type without a table, and so without columns",
                    key=f"features.{name}",
                    fix=f"Give the type one in graph.nodes.{name}, or leave its features out.",
                )
        has_made = bool(types) and (self.has_degree_features(types[0]) or types[0] in self.id_embeddings)
        if types and not self.schema.is_typed and not self.features_of(types[0]) and not has_made:
            yield problem(
                f"{types[0]!r} has no features, and is the only type",
                key="features",
                fix="Name the columns of its table that are its features.",
            )


def _nearest_input(name: str, listed: Mapping[str, Sequence[str]], named: Collection[str]) -> str:
    """Return the hint for a misspelt column. listed: the inputs of each owner; named: all, as the config may say them.

    OWNER.COLUMN is compared with the columns of this owner, as the owner is alike in all of them.
    """
    owner, _, column = name.rpartition(".")
    if owner not in listed:
        return nearest(name, sorted(named))
    near = closest(column, listed[owner])
    return f"Did you mean '{owner}.{near}'?" if near else ""


def node_tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return the location of each type's node table: `nodes`, or `nodes/<type>` where there are several.

    It is empty for a type without a table.
    """
    return {f"nodes/{name}" if graph.schema.is_typed else "nodes": uri for name, uri in graph.node_tables.items()}


def edge_tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return the location of each edge table: `edges`, or `edges/<relation>` where there are several."""
    return {f"edges/{name}" if graph.schema.is_typed else "edges": uri for name, uri in graph.edge_tables.items()}


def tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return the location of each table by its name."""
    found = node_tables_by_name(graph) | edge_tables_by_name(graph)
    return {name: uri for name, uri in found.items() if uri}


def table_key(name: str) -> str:
    """Return the config key of a table's location."""
    return f"graph.{name.replace('/', '.')}"
