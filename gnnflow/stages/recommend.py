"""Recommend: the best of all items for each user, from a run's embeddings and its decoder, with metrics over all items.

A user is a node that the predicted links start from, an item one that they lead to. Seen items are the ends of the
edges that carry messages in the store that the embeddings were computed on: the training edges of a run, all edges of
`gnnflow score`. Held-out links of a run carry none, so they are found or not, and give the metrics.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.config import STAGES
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.labels import metric_text
from gnnflow.graph.run_facts import RecommendFacts, TrainFacts
from gnnflow.graph.splits import SPLITS
from gnnflow.report.judging import Judgement, baseline_name, baselines_in, headline_key, judge
from gnnflow.stages.base import Artifact, Made, StageResult
from gnnflow.stages.out import out_file, refuse_taken, write_out
from gnnflow.stages.pairs import scored_by
from gnnflow.stages.resolve import memory_of_worker
from gnnflow.stages.running import do_once
from gnnflow.storage.columns import combine, to_numpy
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.manifest import fingerprint_of, read_manifest
from gnnflow.storage.run_folder import read_metrics
from gnnflow.storage.tables import read_artifact_table
from gnnflow.storage.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gnnflow.graph.arrays import Array
    from gnnflow.stages.base import ArtifactResult, StageContext, StageRun
    from gnnflow.storage.manifest import Manifest

POPULARITY = "popularity"
_RANKS = ("rank", "popularity_rank")
_METRICS = ("recall", "ndcg", "precision")
_NAME_WIDTH, _CELL_WIDTH = 22, 34


@dataclass(frozen=True, kw_only=True)
class RecommendResult(StageResult):
    """The lists: their artifact, and the file they were copied to, "" for none.

    judgement: compares the metric of the lists with the one of a list by popularity; None without held-out links.
    run_judgement: compares the run's score with its best baseline's, which may be stronger than popularity; None where
    the run is not complete or has no baseline.
    """

    artifact: str
    facts: RecommendFacts
    digest: str
    out: str
    judgement: Judgement | None
    run_judgement: Judgement | None

    @property
    def lists(self) -> str:
        """The folder of the lists, a file per partition."""
        from gnnflow.infer.lists import LISTS

        return join(self.artifact, LISTS)

    @property
    def links(self) -> str:
        """The folder of the held-out links with their ranks."""
        from gnnflow.infer.lists import LINKS

        return join(self.artifact, LINKS)

    def summary(self) -> dict[str, Any]:
        """Return plain values, for `--json`."""
        return {
            **super().summary(),
            "artifact": self.artifact,
            "digest": self.digest,
            "lists": self.out or self.lists,
            "links": self.links,
            "users": self.facts.users,
            "items": self.facts.items,
            "rows": self.facts.rows,
            "metrics": self.facts.metrics,
            "judgement": None if self.judgement is None else self.judgement.as_json(),
            "run_judgement": None if self.run_judgement is None else self.run_judgement.as_json(),
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines that a person reads."""
        facts, k = self.facts, self.facts.top
        for split in reversed([each for each in SPLITS if each in facts.evaluated]):
            users = facts.evaluated[split]
            yield f"{split}: {users:,} users with held-out links, ranked among all {facts.items:,} items"
            yield f"{'':{_NAME_WIDTH}}{'lists':>{_CELL_WIDTH}}{POPULARITY:>{_CELL_WIDTH}}"
            for name, key in _rows(facts, split):
                cells = (_cell(facts.metrics, each) for each in (key, f"{POPULARITY}.{key}"))
                yield f"{name:<{_NAME_WIDTH}}" + "".join(f"{cell:>{_CELL_WIDTH}}" for cell in cells)
        shown = [int(facts.metrics[f"{each}items_at_{k}"]) for each in ("", f"{POPULARITY}.")]
        yield f"{shown[0]:,} of {facts.items:,} items are shown to somebody; a list by popularity shows {shown[1]:,}"
        if facts.repeats:
            yield f"{facts.repeats:,} held-out links are seen as well, so no list can have them; they do not count"
        yield ""
        yield from self.verdict.split("\n")
        yield f"lists  {self.out or self.lists}"
        yield f"links  {self.links}"

    @property
    def verdict(self) -> str:
        """Sentences about whether the lists are worth showing, the run's best baseline first where it is not beaten."""
        if self.judgement is None:
            own = "No link is held out here, so nothing says how good the lists are."
        else:
            own = f"{self.judgement.key}: {self.judgement.text}"
            if self.judgement.outcome != "better":
                own += ". Popularity is not beaten: show its list, which costs nothing, until a model does better."
        held = self.run_judgement
        if held is None:
            return own
        found = f"{held.key} of the run: {held.text}"
        if held.outcome == "better":
            return f"{own}\n{found}"
        return f"{found}. Lists by {baseline_name(held.baseline, held.key)} may be better than these.\n{own}"


def _rows(facts: RecommendFacts, split: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the key of each metric to print: of test by thirds of the items too."""
    from gnnflow.infer.lists import THIRDS

    for metric in _METRICS:
        yield f"{metric}_at_{facts.top}", f"{split}.{metric}_at_{facts.top}"
    for group in THIRDS if split == "test" else ():
        key = f"{split}.{group}.recall_at_{facts.top}"
        if key in facts.metrics:
            yield f"recall, {group} third", key


def _cell(metrics: Mapping[str, float], key: str) -> str:
    low, high = (metrics.get(f"{key}{side}") for side in ("_low", "_high"))
    interval = "" if low is None or high is None else f" ({metric_text(low)} to {metric_text(high)})"
    return f"{metric_text(metrics[key])}{interval}"


def run(context: StageContext, *, out: str | None = None, embeddings: str | None = None) -> RecommendResult:
    """Make the lists of a completed run.

    out: a Parquet file to write the lists to, besides the artifact. embeddings: the folder of predictions that `gnnflow
    score` wrote with the run's published model; None reads the run's own.
    Raises ConfigError where the run predicts no links, StorageError if a stage has not run.
    """
    begin = time.monotonic()
    if context.config.task.kind != "link":
        raise ConfigError(
            f"{context.config.task.kind}, whose model ranks no items",
            where="task.kind",
            fix="Recommend from a config with task.kind: link.",
        )
    inputs = _inputs(context, embeddings)
    file = None if out is None else out_file(out, name="recommended")
    if file is not None:
        refuse_taken(file, context.config)
    made = _make(context, inputs)
    if file is not None:
        write_out(made.artifact, _lists_of(made.manifest), file)
    facts = made.facts(RecommendFacts)
    return RecommendResult(
        stage="recommend",
        seconds=time.monotonic() - begin,
        reused=made.reused,
        artifact=made.artifact,
        facts=facts,
        digest=made.digest,
        out=file or "",
        judgement=judgement_of(facts),
        run_judgement=_judgement_of_run(context),
    )


def _judgement_of_run(context: StageContext) -> Judgement | None:
    """Return the comparison of the run's score with its best baseline's; None before the run is complete."""
    if not exists(context.run.record):
        return None
    metrics = read_metrics(context.run.uri)
    return judge(
        metrics, baselines_in(metrics), headline_key(metrics, context.artifact("train").facts(TrainFacts).metric)
    )


def judgement_of(facts: RecommendFacts) -> Judgement | None:
    """Compare ndcg with the one of a list by popularity, on test or else on valid; None without held-out links."""
    beside = {
        key.removeprefix(f"{POPULARITY}."): value for key, value in facts.metrics.items() if key not in _own(facts)
    }
    split = next((each for each in reversed(SPLITS) if each in facts.evaluated), None)
    return judge(facts.metrics, {POPULARITY: beside}, None if split is None else f"{split}.ndcg_at_{facts.top}")


def _own(facts: RecommendFacts) -> set[str]:
    return {key for key in facts.metrics if not key.startswith(f"{POPULARITY}.")}


def _inputs(context: StageContext, embeddings: str | None) -> dict[str, Artifact]:
    """Return the artifacts that the lists are made from: a graph store, embeddings on it, and the decoder."""
    store = context.run.store_stage
    trained = context.artifact("train")
    if embeddings is None:
        return {store: context.artifact(store), "infer": context.artifact("infer"), "train": trained}
    scored = scored_by(trained.uri, embeddings)
    manifest = read_manifest(scored)
    held = Workspace.of(scored).artifact(store, manifest.inputs[store])
    return {store: Artifact(held, read_manifest(held)), manifest.stage: Artifact(scored, manifest), "train": trained}


def _make(context: StageContext, inputs: Mapping[str, Artifact]) -> ArtifactResult:
    keys = context.config.recommend.model_dump(mode="json")
    # a repeated training may give other embeddings under the same fingerprints
    named = {stage: [each.manifest.fingerprint, each.manifest.digest] for stage, each in inputs.items()}
    version = STAGES["recommend"].version
    fingerprint = fingerprint_of("recommend", keys=keys, inputs=named, format_version=version)
    return do_once(context, "recommend", _work, fingerprint=fingerprint, inputs=inputs)


def _work(run: StageRun) -> Made:
    from gnnflow.infer.lists import ListJob, run_rounds

    asked = run.config.recommend
    scored = next(each for stage, each in run.inputs.items() if stage in {"infer", "score"})
    job = ListJob.of(
        run.store,
        artifact=run.artifact,
        scored=scored.uri,
        model=run.inputs["train"].uri,
        top=asked.top,
        exclude_seen=asked.exclude_seen,
        memory=memory_of_worker(run.config),
    )
    records = run_rounds(job, run.rounds)
    files = tuple(entry for record in records for entry in record.files)
    metrics, evaluated = _measure(run.artifact, [entry.name for entry in files], top=asked.top, items=job.num_items)
    shown = {place for record in records for place in record.counts["shown"]}
    metrics[f"{POPULARITY}.items_at_{asked.top}"] = len(shown)
    rows = sum(record.counts["rows"] for record in records)
    facts = RecommendFacts(
        metrics,
        asked.top,
        asked.exclude_seen,
        users=job.num_users,
        items=job.num_items,
        rows=rows,
        evaluated=evaluated,
        repeats=sum(record.counts["repeats"] for record in records),
        model=run.inputs["train"].manifest.digest,
    )
    return Made(files, rows_in=job.num_users, rows_out=rows, facts=facts)


def _measure(artifact: str, files: list[str], *, top: int, items: int) -> tuple[dict[str, float], dict[str, int]]:
    """Return the metrics of the committed lists and links, and the users with held-out links of each split."""
    from gnnflow.infer.lists import LINKS, LISTS, THIRDS
    from gnnflow.train.lists import PlacedLinks, list_metrics

    shown = pa.concat_arrays(
        [pc.unique(combine(read_artifact_table(artifact, name, ["item"])["item"])) for name in _below(LISTS, files)]
    )
    metrics: dict[str, float] = {f"items_at_{top}": len(pc.unique(shown))}
    parts: list[tuple[Array, ...]] = []
    first = 0
    for name in _below(LINKS, files):
        links = read_artifact_table(artifact, name)
        encoded = combine(links["user"]).dictionary_encode()
        numbers = first + to_numpy(encoded.indices).astype(np.int64)
        first += len(encoded.dictionary)
        found = (to_numpy(pc.fill_null(combine(links[each]).cast(pa.int64()), top + 1)) for each in _RANKS)
        groups = {"split": SPLITS, "popularity": THIRDS}
        codes = (to_numpy(pc.index_in(combine(links[each]), pa.array(names))) for each, names in groups.items())
        parts.append((numbers, *codes, *found))
    users, splits, thirds, *both = (np.concatenate(each) for each in zip(*parts, strict=True))
    evaluated: dict[str, int] = {}
    for code, split in enumerate(SPLITS):
        for third, group in enumerate(("", *THIRDS), start=-1):
            rows = np.flatnonzero((splits == code) & ((thirds == third) if group else True))
            if not group and len(rows):
                evaluated[split] = len(np.unique(users[rows]))
            for prefix, ranks in zip(("", f"{POPULARITY}."), both, strict=True):
                measured = list_metrics(PlacedLinks(users[rows], ranks[rows] - 1), top=top, items=items)
                key = f"{prefix}{split}.{group}." if group else f"{prefix}{split}."
                metrics |= {f"{key}{name}": value for name, value in measured.items()}
    return metrics, evaluated


def _below(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(f"{folder}/")]


def _lists_of(manifest: Manifest) -> list[str]:
    """Return the files of the lists, one for each partition."""
    from gnnflow.infer.lists import LISTS

    return _below(LISTS, [entry.name for entry in manifest.files])
