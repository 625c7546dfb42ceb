"""Finds the roles of an edge list's columns from their names: ends and their types, weight and time.

A name is read as its words ("FromNodeId" is from, node, id), so that case and separators do not matter. Nothing is
guessed: a function returns None where names do not show it, and `edge_csv.py` then asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

Pair = tuple[str, str]
Words = tuple[str, ...]

_WORD = re.compile(r"[0-9]+|[^\W\d_]+")
_CASES = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ID = frozenset(("id", "ids", "uid", "idx", "index", "key"))
_GENERIC = _ID | {"name", "node", "nodes", "vertex"}
_ENDS_IN_ID = re.compile(r"[^\W\d_]{2,}id")
_NO_ID = frozenset(("paid", "unpaid", "prepaid", "valid", "invalid", "grid", "void", "fluid", "solid", "hybrid"))
_STRONG = (
    (("source", "src", "orig", "origin"), ("target", "dst", "dest", "destination", "tgt", "trg")),
    (("from",), ("to",)),
    (("sender",), ("receiver", "recipient")),
    (("caller",), ("callee",)),
    (("payer",), ("payee",)),
    (("follower",), ("followee", "followed")),
    (("citing",), ("cited",)),
)
# These name other things too, such as the start and the end of a call.
_WEAK = (
    (("start",), ("end",)),
    (("head",), ("tail",)),
    (("parent",), ("child",)),
    (("subject",), ("object",)),
    (("u",), ("v",)),
    (("i",), ("j",)),
)
_WORDS = _STRONG + _WEAK
_NUMBERED = (("1", "2"), ("0", "1"), ("a", "b"))
# Two columns with such a word are not ends: from_date and to_date, src_port and dst_port.
_ATTRIBUTES = frozenset(("time", "timestamp", "date", "datetime", "year", "month", "day", "hour", "lat", "lon"))
_ATTRIBUTES |= {"latitude", "longitude", "port", "amount", "balance", "currency", "type", "kind", "weight", "count"}
# Roles of a node in a relation: it may have the other end's type.
RELATIVES = frozenset(("friend", "follower", "parent", "child", "manager", "boss", "supervisor", "partner", "peer"))
RELATIVES |= {"neighbor", "neighbour", "contact", "other", "referrer"}
_WEIGHT = frozenset((("weight",), ("weights",), ("edge", "weight")))
_TIME = frozenset((("timestamp",), ("time",), ("datetime",), ("date",), ("ts",), ("unixtime",), ("unix", "time")))
_RELATION = frozenset((("relation",), ("rel",), ("predicate",), ("relationship",), ("relation", "type")))
_NEO4J = re.compile(r"(?P<name>[^:]*):(?P<field>[A-Za-z_]+)(?:\((?P<group>[^)]*)\))?(?:\{.*\})?(?:\[\])?")
_NEO4J_FIELDS = ("ID", "START_ID", "END_ID", "LABEL", "TYPE", "IGNORE")
_PAIR = 2


@dataclass(frozen=True)
class Neo4jHeader:
    """A header of relationships as `neo4j-admin import` reads it: ends, their id groups, and other columns' roles.

    kind: the column of relationship types. names: other columns' names without their types. ignored: columns to leave
    out.
    """

    ends: Pair
    groups: Pair
    kind: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def neo4j_header(names: Sequence[str]) -> Neo4jHeader | None:
    """Return the parts of a header of Neo4j; None where :START_ID or :END_ID is missing or there twice."""
    found = [(name, match) for name in names if (match := _NEO4J.fullmatch(name.strip()))]
    by_field = {part: [each for each in found if each[1]["field"].upper() == part] for part in ("START_ID", "END_ID")}
    if any(len(held) != 1 for held in by_field.values()):
        return None
    ((src, start),), ((dst, end),) = by_field.values()
    others = [(name, match) for name, match in found if name not in (src, dst)]
    return Neo4jHeader(
        ends=(src, dst),
        groups=(start["group"] or "", end["group"] or ""),
        kind=next((name for name, match in others if match["field"].upper() == "TYPE"), None),
        names={name: match["name"] for name, match in others if match["name"]},
        ignored=tuple(name for name, match in others if match["field"].upper() == "IGNORE"),
    )


@dataclass(frozen=True)
class Neo4jNodes:
    """A header of nodes as `neo4j-admin import` reads it: the column of ids, their group, and other columns' roles.

    label: the column of labels. names: other columns' names without their types.
    """

    ids: str
    group: str
    label: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def neo4j_nodes(names: Sequence[str]) -> Neo4jNodes | None:
    """Return the parts of a header of Neo4j's nodes; None where :ID is missing or there twice."""
    found = [(name, match) for name in names if (match := _NEO4J.fullmatch(name.strip()))]
    ids = [each for each in found if each[1]["field"].upper() == "ID"]
    if len(ids) != 1:
        return None
    ((column, match),) = ids
    others = [each for each in found if each[0] != column]
    return Neo4jNodes(
        column,
        match["group"] or "",
        label=next((name for name, held in others if held["field"].upper() == "LABEL"), None),
        names={name: held["name"] for name, held in others if held["name"]},
        ignored=tuple(name for name, held in others if held["field"].upper() == "IGNORE"),
    )


def neo4j_types(names: Sequence[str]) -> dict[str, str]:
    """Return the types that a header of Neo4j gives, with `[]` at the end for lists, by column."""
    found = {name: match for name in names if (match := _NEO4J.fullmatch(name.strip()))}
    return {
        name: match["field"].lower() + "[]" * name.strip().endswith("[]")
        for name, match in found.items()
        if match["field"].upper() not in _NEO4J_FIELDS
    }


def find_ends(names: Sequence[str]) -> Pair | None:
    """Return the columns of an edge's source and target; None where the names do not show them.

    The first of these rules that applies decides, and it must apply to one pair of columns only: a pair of words such
    as source and target, two ids of different things (userId, movieId), a pair of weaker words such as start and end,
    such words with others (from_account, to_account), the first two columns where they differ by 1 and 2, and two
    columns of one letter each.
    """
    words = {name: split_words(name) for name in names}
    for rule in (_strong, _ids, _weak, _strong_with_others, _weak_with_others, _numbered, _letters):
        if found := list(rule(words)):
            return found[0] if len(found) == 1 else None
    return None


def find_types(src: str, dst: str) -> Pair | None:
    """Return the node types that two ends name, ("", "") for one type; None where the names do not show them."""
    words = {name: split_words(name) for name in (src, dst)}
    found = ((mine, theirs) if pair == (src, dst) else (theirs, mine) for pair, mine, theirs in _roles(words, _WORDS))
    roles = next(found, None)
    if roles is None and (_differ_by_number(*words.values()) or max(len(src.strip()), len(dst.strip())) == 1):
        return "", ""
    first, second = roles or (_subject(words[src]), _subject(words[dst]))
    if first == second and (roles is not None or first):
        return "", ""
    if not first or not second or RELATIVES & {*first, *second}:
        return None
    return "_".join(first), "_".join(second)


def find_weight(names: Sequence[str]) -> str | None:
    """Return the only column named weight, in any case; None without one or with several."""
    return _choose([name for name in names if split_words(name) in _WEIGHT], exact="weight")


def find_time(names: Sequence[str]) -> str | None:
    """Return the only column named timestamp, time or date; None without one or with several."""
    return _choose([name for name in names if split_words(name) in _TIME], exact="timestamp")


def find_relation(names: Sequence[str]) -> str | None:
    """Return the only column named relation or predicate; None without one or with several."""
    return _choose([name for name in names if split_words(name) in _RELATION], exact="relation")


def is_header(names: Sequence[str]) -> bool:
    """Return whether the words of a first line name the ends, which an edge never does."""
    words = {name: split_words(name) for name in names}
    return bool(list(_strong(words)) or list(_ids(words)))


def are_numbers(names: Sequence[str]) -> bool:
    """Return whether a first line holds only numbers, which a header never does."""
    return all(re.fullmatch(r"\s*[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?\s*", name) for name in names)


def split_words(name: str) -> Words:
    """Return a name's words in lower case; an `id` at the end of a word (movieid) is a separate word."""
    words = [word.lower() for part in _WORD.findall(name) for word in _CASES.split(part)]
    split = ((word[:-2], "id") if _ENDS_IN_ID.fullmatch(word) and word not in _NO_ID else (word,) for word in words)
    return tuple(word for part in split for word in part)


def _choose(found: Sequence[str], *, exact: str) -> str | None:
    if exact in found:
        return exact
    return found[0] if len(found) == 1 else None


def _kept(words: Words, kept: Iterable[str]) -> Words:
    return tuple(word for word in words if word in kept)


def _subject(words: Words) -> Words:
    """Return the words of the things that a column's ids name: user for user_id and user_id_2."""
    return tuple(word for word in words if word not in _GENERIC and not word.isdigit())


def _roles(words: dict[str, Words], groups: Sequence[tuple[Words, Words]]) -> Iterator[tuple[Pair, Words, Words]]:
    """Yield pairs of columns with a source's and a target's word, and their other words that are not generic."""
    for sources, targets in groups:
        for src, mine in words.items():
            for dst, theirs in words.items() if {*sources} & {*mine} else ():
                if src != dst and {*targets} & {*theirs}:
                    left = ({*mine} - {*sources} - _GENERIC, {*theirs} - {*targets} - _GENERIC)
                    yield (src, dst), _kept(mine, left[0]), _kept(theirs, left[1])


def _pairs(words: dict[str, Words], groups: Sequence[tuple[Words, Words]], *, alone: bool) -> Iterator[Pair]:
    """Yield the pairs of columns with a pair of words; alone: only without other words, else only with some."""
    for pair, mine, theirs in _roles(words, groups):
        if alone != bool(mine or theirs) and not _ATTRIBUTES & {*mine, *theirs}:
            yield pair


def _strong(words: dict[str, Words]) -> Iterator[Pair]:
    return _pairs(words, _STRONG, alone=True)


def _weak(words: dict[str, Words]) -> Iterator[Pair]:
    return _pairs(words, _WEAK, alone=True)


def _strong_with_others(words: dict[str, Words]) -> Iterator[Pair]:
    return _add_numbered_pairs(words, _pairs(words, _STRONG, alone=False))


def _weak_with_others(words: dict[str, Words]) -> Iterator[Pair]:
    return _add_numbered_pairs(words, _pairs(words, _WEAK, alone=False))


def _add_numbered_pairs(words: dict[str, Words], pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Yield the pairs, and other columns that differ by a number: From Bank, To Bank, Account, Account.1."""
    for pair in pairs:
        yield pair
        others = [name for name in words if name not in pair]
        yield from ((a, b) for a, b in combinations(others, 2) if _subject(words[a]) == _subject(words[b]) != ())


def _ids(words: dict[str, Words]) -> Iterator[Pair]:
    ids = [name for name, own in words.items() if own and own[-1] in _ID]
    things = {_subject(words[name]) for name in ids}
    if len(ids) == len(things) == _PAIR and () not in things:
        yield ids[0], ids[1]


def _numbered(words: dict[str, Words]) -> Iterator[Pair]:
    first = list(words)[:_PAIR]
    if len(first) == _PAIR and _differ_by_number(words[first[0]], words[first[1]]):
        stem = _stem(words[first[0]])
        if len("".join(stem)) > 1 and sum(_stem(each) == stem for each in words.values()) == _PAIR:
            yield first[0], first[1]


def _letters(words: dict[str, Words]) -> Iterator[Pair]:
    if len(words) == _PAIR and all(len(name.strip()) == 1 for name in words):
        first, second = words
        yield first, second


def _stem(words: Words) -> Words:
    return tuple(word for word in words if not word.isdigit() and word not in {"a", "b"})


def _differ_by_number(mine: Words, theirs: Words) -> bool:
    """Return whether two names differ only by a number, or by a and b."""
    apart = [pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]]
    return len(mine) == len(theirs) and len(apart) == 1 and apart[0] in _NUMBERED
