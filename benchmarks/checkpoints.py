"""What a checkpoint costs the training loop: written in the loop, and beside it, in turns in one run.

A linear model of 10 M parameters with Adam takes steps of some tens of milliseconds; every fiftieth is
followed by a checkpoint of model, best model and both moments (160 MB).

    python benchmarks/checkpoints.py --folder DIR
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

import torch

from gnnflow.config import MiniBatchConfig
from gnnflow.train.background import CheckpointWriter
from gnnflow.train.checkpoint import Checkpoint, copied, write_checkpoint
from gnnflow.train.updater import LocalUpdater

EVERY = 50
CHECKPOINTS = 3


class Round:
    """A round of steps with its checkpoints: how long it took, and how long the loop waited for checkpoints."""

    def __init__(self, model: torch.nn.Module, updater: LocalUpdater, x: torch.Tensor) -> None:
        self._model, self._updater, self._x = model, updater, x

    def run(self, save: Callable[[], None]) -> tuple[float, float]:
        """Return seconds of the round and seconds of waiting, per checkpoint."""
        waited, begin = 0.0, time.perf_counter()
        for step in range(1, EVERY * CHECKPOINTS + 1):
            self._updater.step(self._model(self._x).square().mean())
            if step % EVERY == 0:
                asked = time.perf_counter()
                save()
                waited += time.perf_counter() - asked
        return (time.perf_counter() - begin) / CHECKPOINTS, waited / CHECKPOINTS


def _put(writer: CheckpointWriter, taken: Callable[[], Checkpoint]) -> None:
    writer.put(taken())


def main() -> None:
    """Print the costs and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="Where checkpoints go; a temporary folder unless given.")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000) for _ in range(10)))
    updater = LocalUpdater(model, MiniBatchConfig())
    steps = Round(model, updater, torch.randn(64, 1000))
    best = copied(model.state_dict())

    def taken() -> Checkpoint:
        return Checkpoint("d", {}, model.state_dict(), best, updater.state())

    found: dict[str, list[tuple[float, float]]] = {"in the loop": [], "beside it": []}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        uri = f"{folder}/c.safetensors"
        for _ in range(options.rounds):
            plain, _ = steps.run(lambda: None)
            inside, waited = steps.run(lambda: write_checkpoint(uri, taken()))
            found["in the loop"].append((waited, inside / plain))
            with CheckpointWriter(uri) as writer:
                beside, waited = steps.run(partial(_put, writer, taken))
            found["beside it"].append((waited, beside / plain))
    waits = {name: statistics.median(waited for waited, _ in rows) for name, rows in found.items()}
    for name, rows in found.items():
        share = statistics.median(ratio for _, ratio in rows)
        print(f"written {name}: the loop waits {waits[name] * 1e3:.0f} ms; its time is {share:.2f} of that without")
    print(f"waiting, in the loop / beside it: {waits['in the loop'] / waits['beside it']:.1f}")


if __name__ == "__main__":
    main()
