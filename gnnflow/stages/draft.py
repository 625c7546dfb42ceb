"""Writes a config from tables: roles that names and values show, a model of usual size, and comments that say why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from gnnflow.config.environment import config_line
from gnnflow.config.formats_section import CsvFormat
from gnnflow.config.loading import read_config
from gnnflow.config.messages import explain
from gnnflow.config.places import path_from
from gnnflow.config.yaml_text import yaml_inline
from gnnflow.graph.errors import ConfigError, GnnflowError
from gnnflow.stages.column_roles import (
    FeatureRole,
    LabelRole,
    find_features,
    find_label,
    find_split,
    not_weight,
)
from gnnflow.stages.first_look import first_look
from gnnflow.stages.given_tables import GivenTable, read_given, type_name
from gnnflow.stages.leaks import Leak
from gnnflow.stages.resolve import SMALL_BYTES, bytes_of_tables, stamps_of_files
from gnnflow.stages.table_roles import EdgeRole, NodeRole, Pair, Reference, Roles, find_roles
from gnnflow.storage.inner_tables import tables_of

_MANY = 200_000  # nodes above which neighbours are sampled
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SMALL_BATCH, _LARGE_BATCH = 256, 1024


@dataclass(frozen=True)
class Draft:
    """A config as text, what was chosen (for stderr), and what would still stop its run."""

    text: str
    told: tuple[str, ...]
    stops: tuple[GnnflowError, ...]


@dataclass(frozen=True)
class _Graph:
    """The chosen roles of all tables. kind: of the task; out: the config's file, from whose folder paths begin."""

    name: str
    roles: Roles
    label: LabelRole | None
    split: str | None
    features: dict[str, list[FeatureRole]]
    left: dict[str, dict[str, str]]
    kind: str
    out: str = ""

    def path_of(self, table: GivenTable) -> str:
        """Return a table's path as the config's file has it."""
        return path_from(table.uri, self.out)

    @property
    def is_typed(self) -> bool:
        """True where the graph has several types or relations, or one that leaves rows out."""
        has_gaps = any(_gaps_of(edge) for edge in self.roles.edges)  # a relation may leave these rows out
        return len(self.nodes) > 1 or len(self.roles.edges) > 1 or bool(self.roles.keys) or bool(self.bare) or has_gaps

    @property
    def bare(self) -> list[NodeRole]:
        """The types without a table, each once."""
        ends = [end.nodes for edge in self.roles.edges for end in _ends(edge) if end.nodes.bare]
        return list({each.bare: each for each in ends}.values())

    def of_label(self, table: GivenTable) -> set[str]:
        """Return the columns of the label and the split, where they are this table's, and of the weight."""
        own = self.label is not None and self.label.table.uri == table.uri
        label = "" if self.label is None else self.label.column
        weight = set() if table.uri in self.unweighted else {"weight"}
        return {*weight, *([label, self.split or ""] if own else [])}

    @property
    def unweighted(self) -> dict[str, str]:
        """The tables of edges whose column called weight is none, with the reason."""
        label = None if self.label is None else (self.label.table.uri, self.label.column)
        found = {}
        for edge in self.roles.edges:
            uri = edge.table.uri
            if (why := "it is the label" if label == (uri, "weight") else not_weight(edge.table)) and "weight" not in {
                end.column for end in _ends(edge)
            }:
                found[uri] = why
        return found

    @property
    def nodes(self) -> tuple[NodeRole, ...]:
        """The node tables."""
        return self.roles.nodes


def draft_config(
    tables: Sequence[str],
    *,
    name: str = "",
    ids: Sequence[str] = (),
    label: str = "",
    ends: Sequence[Pair] = (),
    form: Mapping[str, str] | None = None,
    out: str = "",
) -> Draft:
    """Return a config for tables. Raises ConfigError where it has to ask.

    ids, label, ends: the user's choices. out: the file that the config will be. form: keys of `graph.formats`, for the
    tables that cannot be read without.
    """
    said = _read_form(form) if form else None
    places = {uri: place for place in tables for uri in tables_of(place)}
    given = [read_given(uri, form=said) for uri in places]
    if twice := [each.name for each in given if [other.name for other in given].count(each.name) > 1]:
        raise ConfigError(f"two tables are called {twice[0]!r}", where="gnnflow init", fix="Rename a file.")
    roles = find_roles(given, ids=ids, ends=ends, unnamed=[uri for uri, place in places.items() if uri != place])
    graph = replace(_chosen(roles, name=name, label=label), out=out)
    inputs, rest = [*_input_lines(graph)], [*_other_lines(graph)]
    look = first_look(read_config(_text(inputs, rest), source=out))
    return Draft(_text(inputs, _leak_lines(graph, look.leaks), rest), tuple(_told(graph)), look.stops)


def _text(*parts: Iterable[str]) -> str:
    """Return lines as a text whose comments are of one line each."""
    lines = (line for part in parts for line in part)
    return "".join(f"{_comment(line) if line.strip().startswith('#') else line}\n" for line in lines)


def _read_form(form: Mapping[str, str]) -> CsvFormat:
    try:
        return CsvFormat.model_validate(form)
    except ValidationError as error:
        raise explain(error, form, model=CsvFormat, source="gnnflow init") from None


def _chosen(roles: Roles, *, name: str, label: str) -> _Graph:
    taken: dict[str, set[str]] = {each.table.uri: {each.id} for each in roles.nodes}
    for edge in (*roles.edges, *roles.keys):
        taken.setdefault(edge.table.uri, set()).update((edge.src.column, edge.dst.column))
    tables = [each.table for each in roles.nodes] + [each.table for each in roles.edges]
    found = find_label(tables, taken, asked=label)
    of_nodes = found is not None and found.table.uri in {each.table.uri for each in roles.nodes}
    kind = "link" if found is None else "node" if of_nodes else "edge"
    split = None
    if found is not None:
        taken.setdefault(found.table.uri, set()).add(found.column)
        split = find_split(found.table, taken[found.table.uri])
        taken[found.table.uri] |= {split} if split else set()
    features, left = {}, {}
    for each in roles.nodes:
        features[each.table.uri], left[each.table.uri] = find_features(each.table, taken[each.table.uri])
    first = (*roles.edges, *roles.keys)[0]
    return _Graph(name or first.table.name, roles, found, split, features, left, kind)


def _told(graph: _Graph) -> Iterator[str]:
    for each in graph.nodes:
        yield f"{each.table.uri}: nodes, ids in {each.id!r}, about {each.table.num_rows:,} rows"
    for edge in (*graph.roles.edges, *graph.roles.keys):
        yield f"{edge.table.uri}: edges from {' to '.join(_end_told(end) for end in _ends(edge))}"
    for table in graph.roles.left:
        yield f"{table.uri}: left out, as it holds no ids of another table, and no other holds its own"
    if graph.label is not None:
        yield f"label: {graph.label.column!r} of {graph.label.table.name}, {graph.label.why}"


def _ends(edge: EdgeRole) -> tuple[Reference, Reference]:
    return edge.src, edge.dst


def _gaps_of(edge: EdgeRole) -> float:
    """Return the largest share of rows that lack an end; 0 where none does."""
    return max(edge.table.missing(end.column) for end in _ends(edge))


def _end_told(end: Reference) -> str:
    if end.nodes.bare:
        return f"{end.column!r} (type {end.nodes.bare}, without a table)"
    return f"{end.column!r} ({end.share:.0%} of its values are ids of {end.nodes.name})"


def _relation(edge: EdgeRole) -> str:
    middle = type_name(edge.dst.column) or "key" if edge.is_key else type_name(edge.table.name)
    return f"{type_name(edge.src.nodes.name)}__{middle}__{type_name(edge.dst.nodes.name)}"


def _input_lines(graph: _Graph) -> Iterator[str]:
    """Yield the lines of the YAML up to a model's inputs."""
    yield f"name: {config_line(graph.name)}"
    yield "graph:"
    yield from (f"  {line}" for line in (*_table_lines(graph), *_weight_line(graph), *_format_lines(graph)))
    yield from (f"  {line}" for line in _label_lines(graph))
    yield from (f"  {line}" for line in _feature_lines(graph))


def _leak_lines(graph: _Graph, leaks: Sequence[Leak]) -> Iterator[str]:
    """Yield a comment for each input of the labelled table that by itself tells the class."""
    for leak in leaks:
        assert graph.label is not None, "columns tell a label"
        name = f"{graph.label.table.name}.{leak.column}"
        yield f"  # {name} {leak.text}: take it out where it is known only after the label"


def _other_lines(graph: _Graph) -> Iterator[str]:
    """Yield the lines of the YAML after a model's inputs."""
    for each in graph.nodes:
        for name, why in graph.left[each.table.uri].items():
            yield f"  # {each.table.name}.{name} is left out: {why}"
    yield "  normalize: standard  # numbers of different sizes are made comparable"
    yield "  reverse_edges: true  # information flows along edges in both directions"
    yield from _task_lines(graph)
    yield from _training_lines(graph)
    yield from _cluster_lines(graph)


def _table_lines(graph: _Graph) -> Iterator[str]:
    edges = (*graph.roles.edges, *graph.roles.keys)
    if not graph.is_typed:
        yield f"nodes: {config_line(graph.path_of(graph.nodes[0].table))}"
        yield f"edges: {config_line(graph.path_of(edges[0].table))}"
    else:
        yield "nodes:"
        for each in graph.nodes:
            yield f"  {config_line(type_name(each.table.name))}: {config_line(graph.path_of(each.table))}"
        for bare in graph.bare:
            why = f"the ids in {bare.table.name}.{bare.id}: no table is called so"
            yield f"  {config_line(type_name(bare.bare))}: null  # {why}"
        yield "edges:"
        for edge in edges:
            path = graph.path_of(edge.table)
            keys = {"table": path, "src": edge.src.column, "dst": edge.dst.column}
            value = keys if edge.is_key or _gaps_of(edge) else path
            note = f"  # rows without one of the ends are no edges: {_gaps_of(edge):.0%}" if _gaps_of(edge) else ""
            yield f"  {config_line(_relation(edge))}: {config_line(value)}{note}"
    ids = {type_name(each.table.name): each.id for each in graph.nodes}
    yield from _names_of("id", ids, note="different in each row")
    for key in ("src", "dst"):
        own = {_relation(edge): getattr(edge, key) for edge in graph.roles.edges if not _gaps_of(edge)}
        if not own:  # the relations name their columns
            continue
        shares = ", ".join(dict.fromkeys(f"{end.share:.0%}" for end in own.values() if not end.nodes.bare))
        note = f"{shares} of a sample of its values are ids of {'its nodes' if graph.is_typed else 'nodes'}"
        note = note if shares else "its values are the nodes"
        yield from _names_of(key, {name: end.column for name, end in own.items()}, note=note)


def _weight_line(graph: _Graph) -> Iterator[str]:
    """Yield the line that leaves columns called weight unread where they are no weights."""
    why = graph.unweighted
    if why:
        names = {_relation(edge): None for edge in graph.roles.edges if edge.table.uri in why}
        value = names if graph.is_typed and len(names) < len(graph.roles.edges) else None
        yield f"weight: {config_line(value)}  # {next(iter(why.values()))}"


def _format_lines(graph: _Graph) -> Iterator[str]:
    """Yield the line of the tables that cannot be read without."""
    edges = {_relation(each) if graph.is_typed else "edges": each.table for each in graph.roles.edges}
    nodes = {type_name(each.name) if graph.is_typed else "nodes": each.table for each in graph.nodes}
    held = {name: table.form for name, table in (nodes | edges).items()}
    forms = {name: form.model_dump(exclude_unset=True) for name, form in held.items() if form is not None}
    if forms:
        yield f"formats: {config_line(forms)}"


def _names_of(key: str, names: dict[str, str], *, note: str) -> Iterator[str]:
    """Yield the line of a column's name: one for all tables, or a map."""
    different = set(names.values())
    value = config_line(different.pop()) if len(different) == 1 else config_line(names)
    yield f"{key}: {value}  # {note}"


def _label_lines(graph: _Graph) -> Iterator[str]:
    label = graph.label
    if graph.is_typed:
        edges = (*graph.roles.edges, *graph.roles.keys)
        if graph.kind == "node":
            assert label is not None, "nodes have labels"
            target = type_name(label.table.name)
        else:
            named = [each for each in edges if label is not None and each.table.uri == label.table.uri]
            target = _relation((named or list(edges))[0])
        yield f"target: {config_line(target)}"
    if label is None:
        return
    yield f"label: {config_line(label.column)}  # {_comment(label.why)}"
    if label.is_counted:
        yield "classes: distinct  # the numbers in the column are the classes"
    if label.none:
        yield f"unlabelled: {config_line(label.none)}  # read as no label"
    if graph.split is not None and graph.split != "split":
        yield f"split: {config_line(graph.split)}"


def _feature_lines(graph: _Graph) -> Iterator[str]:
    kinds: dict[str, FeatureRole] = {}
    held = [(each.table, graph.features[each.table.uri]) for each in graph.nodes]
    if graph.is_typed:
        yield "features:"
        for table, columns in held:
            yield f"  {config_line(type_name(table.name))}: {config_line([column.column for column in columns])}"
            kinds |= {f"{type_name(table.name)}.{each.column}": each for each in columns if each.keys}
    else:
        ((table, columns),) = held
        if not columns:
            raise ConfigError(
                f"no column of {table.uri} can be a feature",
                where="gnnflow init",
                fix="Add a column of numbers or of text with repeated values, if need be one that is 1 in each row.",
            )
        yield f"features: {config_line([column.column for column in columns])}"
        kinds |= {each.column: each for each in columns if each.keys}
    read = _attributes(graph, [each for each in graph.roles.edges if _are_scored(graph, each)])
    kinds |= read.kinds
    if kinds:
        yield "columns:  # kinds that the types of columns do not say"
        yield from (f"  {_kind_line(name, role)}" for name, role in kinds.items())
    yield from _attribute_lines(graph, read, has_columns=bool(kinds))


def _has_label(graph: _Graph, table: GivenTable) -> bool:
    return graph.label is not None and graph.label.table.uri == table.uri


def _kind_line(name: str, role: FeatureRole) -> str:
    """Return the line of a column in `columns`, with what was assumed."""
    return f"{yaml_inline(name)}: {config_line(role.keys)}" + (f"  # {role.assumed}" if role.assumed else "")


@dataclass(frozen=True)
class _Attributes:
    """The columns of edge tables that may be inputs. names: of each relation; kinds: in `columns`; left: comments.

    A decoder reads the attributes of the edges that it scores, with any model.
    """

    names: dict[str, list[str]]
    kinds: dict[str, FeatureRole]
    left: list[str]


def _attributes(graph: _Graph, edges: Sequence[EdgeRole]) -> _Attributes:
    found = _Attributes({}, {}, [])
    for edge in edges:
        taken, relation = {edge.src.column, edge.dst.column} | graph.of_label(edge.table), _relation(edge)
        columns, others = find_features(edge.table, taken)
        found.names.update({relation: [each.column for each in columns]} if columns else {})
        before = f"{relation}." if graph.is_typed else ""
        found.kinds.update({f"{before}{each.column}": each for each in columns if each.keys})
        found.left.extend(f"# {edge.table.name}.{name} is left out: {why}" for name, why in others.items())
    return found


def _are_scored(graph: _Graph, edge: EdgeRole) -> bool:
    """Return whether a decoder reads the attributes of a table's edges, which have the labels."""
    return graph.kind == "edge" and _has_label(graph, edge.table)


def _attribute_lines(graph: _Graph, read: _Attributes, *, has_columns: bool) -> Iterator[str]:
    """Yield the lines of attributes that a decoder reads, and comments for attributes that the model does not read."""
    unread = _attributes(graph, [each for each in graph.roles.edges if not _are_scored(graph, each)])
    if unread.kinds and not has_columns:
        yield "# columns:"
    yield from (f"#   {_kind_line(name, role)}" for name, role in unread.kinds.items())
    if read.names:
        yield f"edge_features: {_attribute_names(graph, read.names)}  # the decoder reads those of the scored edges"
        yield "edge_normalize: standard"
    if unread.names:
        yield f"# edge_features: {_attribute_names(graph, read.names | unread.names)}"
        yield from () if read.names else ("# edge_normalize: standard",)
        above = "these lines and those of columns" if unread.kinds else "these lines"
        instead = ", in place of those above" if read.names else ""
        yield f"# {above} would read attributes of edges{instead}, with model: {{kind: gat_e, hidden: 64, layers: 2}}"
    yield from (*read.left, *unread.left)


def _attribute_names(graph: _Graph, names: dict[str, list[str]]) -> str:
    return config_line(names if graph.is_typed else next(iter(names.values())))


def _task_lines(graph: _Graph) -> Iterator[str]:
    if graph.kind == "node" and graph.split is None:
        yield "task: {split: {kind: random}}  # no column says train, valid and test, so they are drawn"
    elif graph.kind == "link":
        yield "task: {kind: link, split: {kind: random}}  # which edges exist is learned: no label was named"
    elif graph.kind == "edge" and graph.split is None:
        yield "task: {kind: edge, split: {kind: random}}  # labels of edges; no column says train, valid and test"
    elif graph.kind == "edge":
        yield "task: {kind: edge}  # labels of edges"


def _training_lines(graph: _Graph) -> Iterator[str]:
    nodes = sum(each.table.num_rows for each in graph.nodes)
    yield "model: {kind: sage, hidden: 64, layers: 2, dropout: 0.3}  # looks two edges far"
    if nodes > _MANY:
        yield "neighbors: {sampling: {kind: uniform, fanout: [15, 10]}}  # 15 neighbours, and 10 of each of these"
    label, metric = graph.label, ""
    if graph.kind == "link":
        metric = ", metric: mrr"
    elif label is not None and label.kind == "number":
        metric = ", metric: mae"
    elif label is not None and label.kind == "several":
        metric = ", metric: micro_f1"
    elif label is not None and label.is_rare:
        metric = ", metric: auto"
    batch, epochs = (_LARGE_BATCH, 20) if nodes > _MANY else (_SMALL_BATCH, 100)
    metric += ", baselines: all"  # a few seconds, and the first run already says what it has to beat
    why = "  # one class is rare: auto takes the average precision, as accuracy says little" if "auto" in metric else ""
    yield "train: {" + f"epochs: {epochs}, patience: 20, batch_size: {batch}, lr: 0.01{metric}" + "}" + why


def _cluster_lines(graph: _Graph) -> Iterator[str]:
    tables = {each.uri: each for each in [*(e.table for e in graph.nodes), *(e.table for e in graph.roles.edges)]}
    if bytes_of_tables({uri: stamps_of_files(table.sample.files) for uri, table in tables.items()}) <= SMALL_BYTES:
        yield "# no cluster section: a small graph needs no worker processes"
    else:
        yield "cluster: {kind: local, workers: 2, memory_limit: 2GiB}"


def _comment(text: str) -> str:
    """Return a text without breaks of lines, after which the names of columns would be read as keys."""
    return _BREAKS.sub(" ", text)
