"""The matrix of an experiment: axes of entries, and the combinations of one entry of each axis.

    matrix:
      model: [{kind: gcn}, {kind: gat, heads: 4}]           # an axis of one key: its entries set keys below it
      reach:                                                # an axis of bundles: its entries set keys of any section
        - {name: near, model.layers: 1, neighbors.sampling.fanout: [10]}
        - {name: far, model.layers: 2, neighbors.sampling.fanout: [10, 5]}
    seeds: 5

An axis is one of bundles where its name is no key of a config. A matrix that is a list is one axis of bundles. Seeds
are the last axis: runs that differ in their seed alone are one variant.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnflow.config.sections import Sections
from gnnflow.graph.errors import ConfigError

SEED = "seed"
AS_WRITTEN = "as written"
"""The label of a variant that no key tells from others."""
_COLUMNS = ("run", "variant", SEED, "seeds", "uri", "failed")  # a comparison's other columns


@dataclass(frozen=True)
class RunRow:
    """One run's place among the runs of an experiment.

    label: unique among the runs. variant: equal for runs that differ in their seed alone. keys: the names of bundles
    and the values, as text, of the keys that vary among variants; "" where a run has what the file has. Every run has
    the same keys.
    """

    label: str
    variant: str
    keys: Mapping[str, str]
    seed: Any


@dataclass(frozen=True)
class Entry:
    """One entry of an axis: its name, "" where its keys name it, the values that it sets, its place in the file."""

    name: str
    values: Mapping[str, Any]
    number: int = 1


@dataclass(frozen=True)
class Choice:
    """One combination of a matrix: its row, the parts of its variant's label, and one entry of each axis."""

    row: RunRow
    parts: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def values(self) -> dict[str, Any]:
        """The values of the keys that it sets."""
        return {key: value for entry in self.entries for key, value in entry.values.items()}


@dataclass(frozen=True)
class _Axis:
    """One axis of a matrix; its name is "" where the matrix is a list."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def column(self) -> str:
        """The name of the column that has its bundles' names."""
        return self.name or "bundle"

    @property
    def keys(self) -> list[str]:
        """The keys that its entries set."""
        return list(dict.fromkeys(key for entry in self.entries for key in entry.values))


def read_matrix(matrix: Any, *, seeds: Any, first_seed: Any, source: str, most_runs: int) -> list[Choice]:
    """Return the combinations of a matrix with each of the seeds, in order.

    seeds: a number of seeds, which count from first_seed, a list of them, or None. Raises ConfigError where the matrix
    is none, sets a key twice, has equal runs, or more of them than most_runs.
    """
    axes = [*_axes(matrix, source), *_seed_axis(seeds, first_seed, source, most_runs)]
    _refuse_twice(axes, source)
    _refuse_many(math.prod(len(axis.entries) for axis in axes), most_runs, source)
    combinations = itertools.product(*(axis.entries for axis in axes))
    choices = _choices([list(zip(axes, held, strict=True)) for held in combinations], first_seed)
    twice = [label for label, number in Counter(choice.row.label for choice in choices).items() if number > 1]
    if twice:
        raise ConfigError(
            f"matrix has two runs `{twice[0]}`", where=source, fix="Leave one out, or give each bundle a name."
        )
    return choices


def sets_part(key: str, other: str) -> bool:
    """Return whether two keys are equal, or one is part of the other: to set both would lose one."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def _axes(matrix: Any, source: str) -> Iterator[_Axis]:
    if isinstance(matrix, list):
        matrix = {"": matrix}
    elif not isinstance(matrix, Mapping):
        raise _not_a_matrix(source)
    for name, entries in matrix.items():
        if not isinstance(entries, list) or not entries:
            raise _not_a_matrix(source)
        if not name and not all(isinstance(entry, Mapping) for entry in entries):
            raise _not_a_matrix(source)
        bundles = _are_bundles(str(name), entries)
        prefix = "" if bundles else str(name)
        axis = _Axis(str(name), tuple(_entry(prefix, held, source, number) for number, held in enumerate(entries, 1)))
        if bundles:
            _refuse_unknown(axis, source)
        named = Counter(entry.name for entry in axis.entries if entry.name)
        if twice := [each for each, number in named.items() if number > 1]:
            raise ConfigError(f"matrix has two bundles called {twice[0]}", where=source, fix="Rename one of them.")
        yield axis


def _not_a_matrix(source: str) -> ConfigError:
    return ConfigError(
        "matrix is neither a map of keys to lists of values nor a list of bundles",
        where=source,
        fix="Write `matrix: {model.kind: [gcn, sage]}`.",
    )


def _are_bundles(name: str, entries: Sequence[Any]) -> bool:
    """Return whether the entries of an axis name their keys in full: the axis's own name is no key of a config."""
    return name.partition(".")[0] not in Sections.model_fields and all(isinstance(entry, Mapping) for entry in entries)


def _refuse_unknown(axis: _Axis, source: str) -> None:
    """Raise ConfigError where a bundle sets a key of no section, and its axis is no key either."""
    for key in axis.keys:
        if key.partition(".")[0] not in Sections.model_fields:
            told = f"{axis.name} is no key of a config, so its entries are bundles; " if axis.name else ""
            raise ConfigError(
                f"{told}{key} is no key of a config",
                where=f"{source}: matrix" if source else "matrix",
                fix="Write keys from the top, such as `model.kind`.",
            )


def _entry(prefix: str, held: Any, source: str, number: int) -> Entry:
    """Return an entry: a value of the axis's key, or a map of keys below it, which `name` may name."""
    if not isinstance(held, Mapping):
        return Entry("", {prefix: held}, number)
    name = held["name"] if isinstance(held.get("name"), str) else ""
    values: dict[str, Any] = {}
    for key, value in held.items():
        if key == "name" and name:
            continue
        for leaf, own in _leaves(f"{prefix}.{key}" if prefix else str(key), value):
            if leaf in values:
                raise ConfigError(f"a bundle of the matrix sets {leaf} twice", where=source, fix="Leave one of them.")
            values[leaf] = own
    return Entry(name, values, number)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys that a value of the matrix sets: its own key, or the keys of a map, at every depth."""
    if not isinstance(value, Mapping):
        yield key, value
        return
    for name, held in value.items():
        yield from _leaves(f"{key}.{name}", held)


def _seed_axis(seeds: Any, first: Any, source: str, most_runs: int) -> Iterator[_Axis]:
    if seeds is None:
        return
    numbers = seeds
    if type(seeds) is int and seeds > 0:
        _refuse_many(seeds, most_runs, source)
        if type(first) is not int:
            raise ConfigError(
                f"seeds counts from seed, and that is {first!r}", where=source, fix="Write `seeds: [0, 1, 2]`."
            )
        numbers = list(range(first, first + seeds))
    if not isinstance(numbers, list) or not numbers or any(type(number) is not int for number in numbers):
        raise ConfigError(
            f"seeds is {seeds!r}, neither a number of seeds nor a list of numbers",
            where=source,
            fix="Write `seeds: 5` or `seeds: [0, 1, 2]`.",
        )
    if twice := [number for number, times in Counter(numbers).items() if times > 1]:
        raise ConfigError(f"seeds has {twice[0]} twice", where=source, fix="Leave one of the two out.")
    yield _Axis("seeds", tuple(Entry("", {SEED: seed}, number) for number, seed in enumerate(numbers, 1)))


def _refuse_twice(axes: Sequence[_Axis], source: str) -> None:
    """Raise ConfigError where two axes set the same key, or one a part of the other's."""
    for one, other in itertools.combinations(axes, 2):
        for key, its in itertools.product(one.keys, other.keys):
            if sets_part(key, its):
                raise ConfigError(
                    f"{one.name or 'matrix'} and {other.name or 'matrix'} both set {min(key, its, key=len)}: one of "
                    "the two would be lost",
                    where=source,
                    fix="Set it in one of them, or write the combinations as one list of bundles.",
                )


def _refuse_many(number: int, most: int, source: str) -> None:
    if number > most:
        raise ConfigError(f"matrix has {number} runs, over {most}", where=source, fix="Split it into several files.")


def _choices(combinations: Sequence[Sequence[tuple[_Axis, Entry]]], first_seed: Any) -> list[Choice]:
    """Return the choices of combinations. A label names bundles by their names, and the others by keys that vary."""
    texts = [
        {axis.column: entry.name for axis, entry in entries if entry.name}
        | {key: _text(value) for _, entry in entries for key, value in entry.values.items() if key != SEED}
        for entries in combinations
    ]
    keys = dict.fromkeys(key for axis, _ in combinations[0] for key in (axis.column, *axis.keys))
    shown = _shortest([key for key in keys if len({held.get(key) for held in texts}) > 1])
    seeds = [_seed_of(entries, first_seed) for entries in combinations]
    varies = len({_text(seed) for seed in seeds}) > 1
    choices = []
    for entries, held, seed in zip(combinations, texts, seeds, strict=True):
        parts = tuple(part for axis, entry in entries for part in _parts(axis, entry, held, shown))
        variant = " ".join(parts)
        label = f"{variant} seed={_text(seed)}".lstrip() if varies else variant
        own = {name: held.get(key, "") for key, name in shown.items()}
        row = RunRow(label or AS_WRITTEN, variant or AS_WRITTEN, own, seed)
        choices.append(Choice(row, parts, tuple(entry for _, entry in entries)))
    return choices


def _seed_of(entries: Sequence[tuple[_Axis, Entry]], first_seed: Any) -> Any:
    """Return the seed that entries set, the file's where none does."""
    return next((entry.values[SEED] for _, entry in entries if SEED in entry.values), first_seed)


def _parts(axis: _Axis, entry: Entry, texts: Mapping[str, str], shown: Mapping[str, str]) -> Iterator[str]:
    """Yield the parts of a label that one entry gives: its name, or its keys, as far as they vary."""
    if entry.name and axis.column in shown:
        yield f"{shown[axis.column]}={entry.name}" if axis.name else entry.name
    elif not entry.name:
        yield from (f"{shown[key]}={texts[key]}" for key in entry.values if key in shown)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shortest(keys: Iterable[str]) -> dict[str, str]:
    """Return the shortest ending of each key, in whole parts, that no other key has and no other column."""
    ends = {key: [key.split(".", skip)[-1] for skip in range(key.count("."), -1, -1)] for key in keys}
    number = Counter(itertools.chain(_COLUMNS, *ends.values()))
    return {key: next((end for end in held if number[end] == 1), key) for key, held in ends.items()}
