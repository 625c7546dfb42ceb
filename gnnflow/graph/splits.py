"""The splits of labelled nodes and their codes: -1 none, 0 train, 1 valid, 2 test."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

from gnnflow.graph.errors import TrainingError

Split = Literal["train", "valid", "test"]

SPLITS: tuple[str, ...] = get_args(Split)
NO_SPLIT = "none"


def split_name(code: int) -> str:
    """Return the name of a split code."""
    return NO_SPLIT if code < 0 else SPLITS[code]


def check_splits(filled: Collection[str], *, patience: int, on_plateau: bool) -> None:
    """Raise TrainingError where training needs a split without targets. filled: the splits with targets."""
    if "train" not in filled:
        raise TrainingError("no target is in the train split", where="graph.split", fix="Mark some targets as train.")
    if patience and "valid" not in filled:
        raise TrainingError(
            f"patience {patience} needs a validation split, and no target is in it",
            where="train.patience",
            fix="Set it to 0, or mark some targets as valid.",
        )
    if on_plateau and "valid" not in filled:
        raise TrainingError(
            "plateau needs the validation metric, and no target is in the valid split",
            where="train.schedule.kind",
            fix="Choose another kind, or mark some targets as valid.",
        )


def too_few_targets(targets: int, ranks: int) -> TrainingError:
    """Return the error of training targets that cannot be divided evenly among ranks, in batches."""
    fix = f"Set it to {targets:,} or less."
    if targets >= ranks:  # batches of one target cannot be halved
        fix = f"Set it to a number that divides {targets:,}, or train.batch_size to 2 or more."
    problem = f"{targets:,} training targets cannot be divided evenly among {ranks} ranks"
    return TrainingError(problem, where="train.workers", fix=fix)
