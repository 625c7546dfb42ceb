"""Which keys decide a stage's result: exactly these enter its fingerprint.

Keys that only change speed, memory or place stay out, so that turning them never repeats work. Paths of input
tables are in, but stages add the tables' content stamps: a path alone says nothing about what it holds. A
stage's inputs carry the keys of the stages before it.
"""

from __future__ import annotations

from typing import Any, Literal, assert_never

from gnnflow.config.flat_section import NoSampling
from gnnflow.config.root import Config

Stage = Literal["ingest", "flat", "train", "infer"]

# Under these keys batches are prepared, cached, evaluated and saved differently; the weights stay the same.
_TRAIN_SPEED_ONLY = frozenset({"prefetch", "cache", "threads", "workers", "eval_batch_size", "checkpoint_steps"})


def stage_keys(config: Config, stage: Stage) -> dict[str, Any]:
    """Return the keys and values, as plain JSON types, that decide what a stage computes."""
    match stage:
        case "ingest":
            return {"graph": config.graph.model_dump(mode="json")}
        case "flat":
            flat = {**config.flat.model_dump(mode="json"), "hops": config.num_hops}
            sampled = not isinstance(config.flat.sampling, NoSampling)
            return {"flat": flat, "seed": config.seed} if sampled else {"flat": flat}
        case "train":
            train = config.train.model_dump(mode="json", exclude=set(_TRAIN_SPEED_ONLY))
            return {"model": config.model.model_dump(mode="json"), "train": train, "seed": config.seed}
        case "infer":
            return {"infer": config.infer.model_dump(mode="json")}
    assert_never(stage)
