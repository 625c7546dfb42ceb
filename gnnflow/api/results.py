"""The results of the calls: a run, scores, and results that show themselves as the command line prints them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gnnflow.graph.labels import metric_text, of_class
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.report.judging import headline_key
from gnnflow.stages.audit_findings import Audit
from gnnflow.stages.differences import Differences
from gnnflow.stages.explanation import Explanation
from gnnflow.stages.forecast import Forecast
from gnnflow.stages.look import Look
from gnnflow.stages.recommend import RecommendResult
from gnnflow.stages.report import report_of
from gnnflow.stages.sweep import SweepResult
from gnnflow.storage.filesystem import join
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.run_folder import (
    PREDICTIONS,
    REPORT,
    metric_class_of,
    metric_of,
    read_metrics,
    read_predictions,
    read_run,
)
from gnnflow.storage.tables import read_artifact_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.layers import Model
    from gnnflow.stages.pipeline import RunResult
    from gnnflow.stages.score import ScoreResult
    from gnnflow.stages.score_drift import ScoreDrift
    from gnnflow.stages.score_ids import SomeScores


class Run:
    """A completed run. It reads its files when they are asked for.

    uri: its folder. reused: whether the call found it complete; None for a run that no call of this process ran.
    """

    def __init__(self, uri: str, *, result: RunResult | None = None) -> None:
        self.uri = uri
        self._result = result

    @property
    def reused(self) -> bool | None:
        """True if the call that returned this run found it complete."""
        return None if self._result is None else self._result.reused

    @cached_property
    def record(self) -> dict[str, Any]:
        """The run's record: its name, config and artifacts."""
        return read_run(self.uri)

    @property
    def name(self) -> str:
        """The run's name."""
        return str(self.record["name"])

    @property
    def config(self) -> dict[str, Any]:
        """The config that the run was made with, each key with its value."""
        return dict(self.record["config"])

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The run's metrics: `test.accuracy`, `baseline.test.accuracy` and others."""
        return read_metrics(self.uri)

    @cached_property
    def predictions(self) -> pa.Table:
        """The predictions, by the user's ids; `.to_pandas()` makes a frame of them."""
        return read_predictions(self.uri)

    @property
    def report(self) -> str:
        """The path or URL of the HTML report, which is made again where it is missing."""
        return report_of(self.uri, workspace=self.uri)

    @cached_property
    def model(self) -> Model:
        """The trained model, in evaluation mode: a `torch.nn.Module`."""
        from gnnflow.layers.saved import load_model

        return load_model(self.record["artifacts"]["train"])

    @property
    def stages(self) -> dict[str, str]:
        """The folder of each stage's artifact."""
        return dict(self.record["artifacts"])

    def summary(self) -> dict[str, Any]:
        """Return plain values: the folder, metrics, places, and the stages where this process ran them."""
        if self._result is not None:
            return self._result.summary()
        places = {"predictions": join(self.uri, PREDICTIONS), "report": join(self.uri, REPORT)}
        return {"run": self.uri, "metrics": self.metrics, **places}

    def headline(self) -> tuple[str, float] | None:
        """Return the key and value of the metric that chose the model, on test or else on valid; None without one."""
        key = headline_key(self.metrics, metric_of(self.record))
        return None if key is None else (key, self.metrics[key])

    def score_text(self) -> str:
        """Return the headline as text; empty without one."""
        found = self.headline()
        if found is None:
            return ""
        return f"{found[0]}{of_class(found[0], metric_class_of(self.record))} {metric_text(found[1])}"

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.score_text() or 'no score'}, {self.uri!r})"

    def _repr_html_(self) -> str:
        """Return the run as a notebook shows it."""
        from gnnflow.report.card import render_card

        trained = self.record["artifacts"]["train"]
        facts = read_facts(trained, read_manifest(trained), TrainFacts)
        return render_card(
            self.name,
            metrics=self.metrics,
            metric=metric_of(self.record),
            curves=facts.history,
            best_epoch=facts.best_epoch,
            report=join(self.uri, REPORT),
        )


class Scores:
    """The scores of tables by a published model: of all targets, or of the ids asked."""

    def __init__(self, result: ScoreResult | SomeScores) -> None:
        self._result = result

    @property
    def model(self) -> str:
        """The published version that scored, as NAME/VERSION."""
        return f"{self._result.name}/{self._result.version}"

    @property
    def uri(self) -> str:
        """The folder of the predictions; empty where ids were asked, whose predictions are not written."""
        held = self._result.predictions
        return held if isinstance(held, str) else ""

    @property
    def report(self) -> str:
        """The HTML page of these scores: metrics, drift, and links; empty where ids were asked."""
        return self._result.report

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics where the tables have labels: `score.accuracy` and others, with bounds; else empty."""
        return self._result.metrics

    @property
    def drift(self) -> ScoreDrift | None:
        """The drift of these scores from the ones before; None where there were none."""
        return self._result.drift

    def lines(self) -> Iterator[str]:
        """Yield what the command line prints: metrics, distribution and drift, or the predictions of some ids."""
        return self._result.lines()

    @property
    def reused(self) -> bool:
        """True if these scores were there already."""
        return self._result.reused

    @cached_property
    def predictions(self) -> pa.Table:
        """The predictions, of the ids asked in their order, or of all targets."""
        held = self._result.predictions
        return read_predictions(held.rstrip("/").removesuffix(f"/{PREDICTIONS}")) if isinstance(held, str) else held

    def summary(self) -> dict[str, Any]:
        """Return plain values."""
        return self._result.summary()

    def __repr__(self) -> str:
        return f"Scores({self.model!r}, {self.uri or f'{self.predictions.num_rows} ids'!r})"


class Lined:
    """A result that shows itself as the command line prints it."""

    def lines(self) -> Iterator[str]:
        """Yield the lines that a person reads."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(self.lines())


class Checked(Lined, Look):
    """All that is known about a run before it begins: `stops`, `tables`, `notes` and others."""

    lines = Look.lines


class Planned(Lined, Forecast):
    """The forecast of a run's cost."""

    lines = Forecast.lines


class Explained(Lined, Explanation):
    """The explanation of a node's score: `sums`, `nodes`, `edges` and `columns` with contributions, as Arrow tables."""

    lines = Explanation.lines


class Audited(Lined, Audit):
    """The findings of an audit: `findings`, and `broken` ones."""

    lines = Audit.lines

    def to_pandas(self) -> Any:
        """Return the findings as a frame of pandas, a row for each check."""
        return pa.Table.from_pylist([vars(each) for each in self.findings]).to_pandas()


class Swept(Lined, SweepResult):
    """The runs of a sweep and the errors of the others, by label, and the files of their comparison."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table: runs best first, failed ones last."""
        yield from self.comparison.lines


class Recommended(Lined, RecommendResult):
    """Lists of the best items of each user, and how good they are over all items."""

    lines = RecommendResult.lines

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics: `test.ndcg_at_10`, `popularity.test.ndcg_at_10` and others."""
        return self.facts.metrics

    @property
    def table(self) -> pa.Table:
        """The lists, a row for each item of a user's list: user, item, rank from 1, score."""
        return _read_folder(self.artifact, self.lists)

    @property
    def held_out(self) -> pa.Table:
        """The held-out links with their ranks in the lists and in a list by popularity, null where not in them."""
        return _read_folder(self.artifact, self.links)


def _read_folder(artifact: str, folder: str) -> pa.Table:
    below = folder.removeprefix(artifact).strip("/")
    names = [each.name for each in read_manifest(artifact).files if each.name.startswith(f"{below}/")]
    return pa.concat_tables([read_artifact_table(artifact, name) for name in names])


class Compared(Lined, Differences):
    """The differences between runs: `config` and `metrics`, each a row of values by key."""

    lines = Differences.lines

    def _repr_html_(self) -> str:
        """Return the table as a notebook shows it."""
        from html import escape

        head = "".join(f"<th>{escape(label)}</th>" for label in ("", *self.runs))
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
