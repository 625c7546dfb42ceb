"""A model at a job's first weights, the steps of some epochs on one rank, and what the model says then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gnnflow.train.ranks.source import open_shares


@contextmanager
def opened(open_source, job, group) -> Iterator:
    """Open a rank's source, and go on once every rank has: opening builds a model too, whose draws need no seed."""
    with open_shares(open_source, job, edges=True, group=group) as source:
        group.agree("job", job.seed)
        yield source


def fresh(job):
    """Return a model at the weights that a job begins with."""
    return job.model.build(seed=job.seed).train()


def stepped(source, model, objective, updater, *, epochs):
    """Return each step's loss and number of targets, the weights after the last, and each split's outputs."""
    losses = []
    for epoch in range(epochs):
        for step in source.steps(epoch, since=0):
            step.seed()
            loss, count = objective.loss(step.logits(model), step.labels)
            taken = updater.step(loss, num_targets=count, weight=objective.weight(step.labels))
            losses.append([taken.mean, taken.num_targets])
    outputs = {split: source.outputs(model, split) for split in source.splits}
    held = {split: (each.targets, each.labels, each.logits) for split, each in outputs.items()}
    return losses, {name: value.detach().clone() for name, value in model.state_dict().items()}, held
