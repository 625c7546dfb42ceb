"""The run that a config means: with the tables and columns that were meant, its config is resolved anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.stages.meant_tables import as_meant, with_hint
from gnnflow.stages.resolve import resolve_partly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.graph.errors import GnnflowError
    from gnnflow.ingest.preview import Preview
    from gnnflow.stages.meant_tables import MeantGraph
    from gnnflow.stages.resolve import ResolvedRun


@dataclass(frozen=True)
class MeantRun:
    """A run by the names that its config means, and a sample of its tables; None where no stage reads these.

    names: the sections with other names than are written, in the order in which they were found. unresolved: the
    errors of tables and models that are not there.
    """

    run: ResolvedRun
    preview: Preview | None
    names: tuple[MeantGraph, ...]
    unresolved: tuple[GnnflowError, ...]

    @property
    def errors(self) -> list[GnnflowError]:
        """The errors of the names that are written."""
        return [error for each in self.names for error in each.errors]

    def explains(self, error: GnnflowError) -> bool:
        """Return whether an error of the config follows from a name that is written and not meant."""
        return any(each.explains(error) for each in self.names)


def find_meant(
    run: ResolvedRun, sample: Callable[[ResolvedRun], Preview | None], *, unresolved: Sequence[GnnflowError] = ()
) -> MeantRun:
    """Return the run that a config means.

    The given config is resolved, not the resolved one, as wrong names hide what else would follow from the tables.

    sample: reads the first rows of a run's tables. unresolved: the errors of tables and models that are not there.
    """
    preview, names = sample(run), []
    while preview is not None and (meant := as_meant(preview, run.given.graph)) is not None:
        names.append(meant)
        run, unresolved = resolve_partly(run.given.model_copy(update={"graph": meant.graph}))
        preview = sample(run)
    if preview is not None:
        unresolved = [with_hint(error, preview, run.config.graph) for error in unresolved]
    return MeantRun(run, preview, tuple(names), tuple(unresolved))
