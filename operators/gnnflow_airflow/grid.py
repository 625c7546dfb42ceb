"""The tasks of an experiment as a person reads them: a group for each variant, and in it one for each seed.

Airflow shows a group's display name, here the label that the comparison shows too. Its id has to be stable: a task with
another id loses its history. So an id is made of what the entries of the matrix say themselves, and not of the label,
which names only keys that vary. Airflow sorts the groups of a DAG by their ids, so an id begins with the places of its
entries in the file, and a new last entry of an axis changes no id. Stages before training are in one group for all
variants: of two groups that wait for each other's tasks, Airflow makes no order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from airflow.sdk import TaskGroup

from gnnflow.config.experiments import MOST_TASKS
from gnnflow.config.matrix import AS_WRITTEN, SEED

if TYPE_CHECKING:
    from gnnflow.config.experiments import Experiment, PlannedRun
    from gnnflow.config.matrix import Entry

_DIGITS = len(str(MOST_TASKS))
_LONGEST = 60  # letters of an id, places apart; Airflow allows 250 with all groups and the task


class Grid:
    """The groups of an experiment's tasks, in the DAG that is being written: prepare, before training, variants."""

    def __init__(self, experiment: Experiment) -> None:
        self._runs = experiment.runs
        self._seeds_vary = len({run.row.seed for run in experiment.runs}) > 1
        self.preparation = TaskGroup("prepare", tooltip="Checks the config and the tables of each run.")
        self.before_training = TaskGroup(
            "before_training", group_display_name="before training", tooltip="Stages that runs share."
        )
        self._variants: dict[str, TaskGroup] = {}

    def group(self, run: PlannedRun) -> TaskGroup:
        """Return the group of a run's own tasks: its variant's, or its seed's in there if the matrix sets a seed."""
        label = run.row.variant
        if label not in self._variants:
            self._variants[label] = TaskGroup(variant_id(run), group_display_name=label)
        seed = _id(run.choice.entries, of_seed=True)
        if not seed:
            return self._variants[label]
        return TaskGroup(seed, group_display_name=f"seed {run.row.seed}", parent_group=self._variants[label])

    def label(self, stage: str, sharing: Sequence[PlannedRun]) -> str:
        """Return the name of a task that runs share: its stage, and what these have in common and others have not."""
        first = sharing[0]
        parts = [part for part in first.choice.parts if all(part in run.choice.parts for run in sharing)]
        common = [part for part in parts if any(part not in run.choice.parts for run in self._runs)]
        if self._seeds_vary and all(run.row.seed == first.row.seed for run in sharing):
            common.append(f"seed {first.row.seed}")
        return f"{stage} ({', '.join(common)})" if common else stage


def variant_id(run: PlannedRun) -> str:
    """Return the id of a run's variant."""
    return _id(run.choice.entries, of_seed=False) or _slug(AS_WRITTEN)


def run_id(run: PlannedRun) -> str:
    """Return the id of a run: of its variant and of its seed, if the matrix sets one."""
    return "-".join(filter(None, [variant_id(run), _id(run.choice.entries, of_seed=True)]))


def shared_id(stage: str, first: PlannedRun) -> str:
    """Return the id of a task that runs share: its stage, and the places of the first run's entries."""
    return "-".join([stage, *(_place(entry) for entry in first.choice.entries)])


def _id(entries: Sequence[Entry], *, of_seed: bool) -> str:
    """Return the places of entries and what they set, of seeds or of all else; "" where none does."""
    held = [entry for entry in entries if any(_texts(entry, of_seed=of_seed))]
    said = _slug("-".join(text for entry in held for text in _texts(entry, of_seed=of_seed)))
    return "-".join([*map(_place, held), said]) if held else ""


def _texts(entry: Entry, *, of_seed: bool) -> Iterator[str]:
    """Yield an entry's name, or the last parts of its keys with their values."""
    if entry.name and not of_seed:
        yield entry.name
        return
    for key, value in entry.values.items():
        if (key == SEED) is of_seed:
            yield f"{key.rpartition('.')[2]}-{value}"


def _place(entry: Entry) -> str:
    return f"{entry.number:0{_DIGITS}}"


def _slug(text: str) -> str:
    """Return a text as part of a group's id: letters, digits, - and _."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text.replace(".", "_").replace("+", ""))[:_LONGEST].strip("-")
