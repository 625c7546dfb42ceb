"""Advice about the bytes and the time that a run took."""

from __future__ import annotations

from gnnflow.report.formats import percent_text, ratio_text, seconds_text, sentence
from gnnflow.report.hint import Hint
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.pictures.pipeline import profiles_of, trainer_waits, waiting_share, waiting_text

MOST_BLOW_UP = 10.0
LONG_RUN = 60.0  # seconds
MOST_OF_TIME = 0.6  # share of one stage
LONG_WAIT = 5.0  # seconds of all epochs
LEAST_STAGES = 3  # before the share of one says anything


def _lower_fan_out(inputs: ReportInputs) -> str:
    """Return how to read fewer neighbours: by a fan-out, or by a smaller one where the config has one."""
    if inputs.setting("neighbors.sampling.kind") in {None, "none"}:
        return "set a fan-out (neighbors.sampling)"
    return "lower the fan-out (neighbors.sampling)"


def _blow_up(inputs: ReportInputs) -> Hint | None:
    blow_up = inputs.blow_up
    if blow_up is None or not blow_up.ratio > MOST_BLOW_UP:
        return None
    fewer = _lower_fan_out(inputs)
    advice = f"{sentence(fewer)} or lower the number of hops"
    if blow_up.layout == "inline":
        advice = f"Use flat.layout: shared, which stores a node once per shard, or {fewer}"
    return Hint(
        "idea",
        f"GraphFlat writes {ratio_text(blow_up.ratio)} what it reads",
        f"{advice}. Larger shards (flat.shard_size) also let more targets share their neighbours.",
    )


def _waiting(inputs: ReportInputs) -> Hint | None:
    slowest = max(profiles_of(inputs), key=waiting_share, default=None)
    if slowest is None or not trainer_waits(slowest):
        return None
    if slowest.get("wait_seconds", 0.0) * len(inputs.curves) < LONG_WAIT:
        return None
    stored, built = (
        sum(slowest.get(f"{part}_seconds", 0.0) for part in parts) for parts in (("read", "decode"), ("build", "sums"))
    )
    advice = (
        "Most of the reader's time is reading and decoding shards: raise train.cache until it holds all of them, or "
        "train.prefetch where the store answers slowly."
        if stored > built
        else f"Most of the reader's time is building blocks: {_lower_fan_out(inputs)}, or raise train.workers, whose "
        f"ranks have a reader each.{_overlap(inputs)}"
    )
    return Hint("idea", "Training waits for its batches", f"{waiting_text(slowest)} {advice}")


def _overlap(inputs: ReportInputs) -> str:
    prefetch = inputs.setting("train.prefetch")
    if prefetch is not None and prefetch > 1:
        return ""
    return " A train.prefetch of 0 prepares batches in turn; 2 or more overlap."


def _slow_stage(inputs: ReportInputs) -> Hint | None:
    done = [stage for stage in inputs.stages if not stage.reused]
    total = sum(stage.seconds for stage in done)
    slowest = max(done, key=lambda stage: stage.seconds, default=None)
    if slowest is None or len(done) < LEAST_STAGES or total < LONG_RUN:
        return None
    if slowest.seconds < MOST_OF_TIME * total:
        return None
    advice = "The timeline shows its rounds; more cluster.workers help where rounds have many tasks."
    if not slowest.rounds:
        advice = "It runs in one process: train.threads and train.batch_size set its speed, train.epochs its length."
    return Hint(
        "idea",
        f"{sentence(slowest.name)} took {percent_text(slowest.seconds / total)} of the time",
        f"{seconds_text(slowest.seconds)} of {seconds_text(total)}. {advice}",
    )


COST_RULES = (
    _blow_up,
    _waiting,
    _slow_stage,
)
