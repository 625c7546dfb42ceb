"""The differences between completed runs: the keys of their configs and the metrics that are not the same in all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnflow.config.messages import show
from gnnflow.graph.labels import is_bound, metric_text
from gnnflow.stages.measured_runs import unlike_metrics
from gnnflow.storage.run_folder import read_metrics, read_run

Row = tuple[Any, ...]
_SHORT = 12  # letters of a run's fingerprint
_FIRST = ("test.", "valid.", "train.", "baseline.", "")


@dataclass(frozen=True)
class Differences:
    """Runs by label, and their values of each key of config and metric that differs; None where a run has none.

    unlike: what metrics are of in each run, where that differs: of another class, or at other costs.
    """

    runs: dict[str, str]
    config: dict[str, Row]
    metrics: dict[str, Row]
    unlike: dict[str, Row] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "runs": self.runs,
            "config": {key: [*row] for key, row in self.config.items()},
            "metrics": {key: [*row] for key, row in self.metrics.items()},
            "unlike": {key: [*row] for key, row in self.unlike.items()},
        }

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield a row of texts for each difference, its name first; the config's before the metrics'."""
        for key, row in self.config.items():
            yield (key, *("" if value is None else show(value) for value in row))
        for key, row in self.metrics.items():
            yield (key, *("" if value is None else metric_text(value) for value in row))
        for name, row in self.unlike.items():
            yield (f"{name} is not comparable", *row)

    def lines(self) -> Iterator[str]:
        """Yield the lines of a table for a person, with a column for each run."""
        rows = [("", *self.runs), *self.rows()]
        if len(rows) == 1:
            yield "These runs have the same config and metrics."
            return
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        for row in rows:
            yield "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()


def find_differences(runs: Sequence[str]) -> Differences:
    """Return the differences between runs, given by their folders. Raises StorageError where one is not complete."""
    records, metrics = [read_run(uri) for uri in runs], [read_metrics(uri) for uri in runs]
    names = [_name_of(record, uri) for record, uri in zip(records, runs, strict=True)]
    labels = [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, 1)]
    found = _differing(metrics)
    unlike = unlike_metrics(records)
    order = sorted(found, key=lambda key: min(place for place, first in enumerate(_FIRST) if key.startswith(first)))
    return Differences(
        dict(zip(labels, runs, strict=True)),
        _differing([dict(_leaves(record["config"])) for record in records]),
        {key: found[key] for key in order if not is_bound(key)},
        unlike,
    )


def _name_of(record: Mapping[str, Any], uri: str) -> str:
    return f"{record['name']}/{uri.rstrip('/').rsplit('/', 1)[1][:_SHORT]}"


def _differing(values: Sequence[Mapping[str, Any]]) -> dict[str, Row]:
    keys = dict.fromkeys(key for held in values for key in held)
    rows = {key: tuple(held.get(key) for held in values) for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}


def _leaves(section: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a config in full, with their values."""
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
