"""Test accuracy of one config on every path that training can take: kernels, precision, ranks, updaters.

    python benchmarks/paths.py --data DIR [--config cora] [--seeds 5] [--only native,torch]

Targets per step over all ranks are the config's, so every path trains the same model on the same batches; ranks draw
their dropout each on their own, and bounded and asynchronous servers apply gradients in the order they arrive. Prints a
table, with the difference of each mean from the first path's and the standard error of that difference.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from accuracy import CONFIGS

from gnnflow.cluster import Cluster
from gnnflow.config import Config, MiniBatchConfig, load_config
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext

_SERVER = "train.updater={{kind: parameter_server, servers: 1, mode: {}}}"
# what each path overrides, and its number of ranks
PATHS: dict[str, tuple[int, tuple[str, ...]]] = {
    "native": (1, ()),
    "torch": (1, ()),
    "bfloat16": (1, ("train.precision=bfloat16",)),
    "2 ranks": (2, ()),
    "4 ranks": (4, ()),
    "2 ranks, synchronous server": (2, (_SERVER.format("synchronous"),)),
    "2 ranks, bounded server": (2, (_SERVER.format("bounded"),)),
    "2 ranks, asynchronous server": (2, (_SERVER.format("asynchronous"),)),
}


@contextmanager
def torch_kernels() -> Iterator[None]:
    """Compute as where the native core was not built."""
    with patch("gnnflow.kernels.core.kernels", lambda: None):
        yield


def config_of(chosen: argparse.Namespace, workspace: str, *, name: str, seed: int) -> Config:
    """Return the run of a path."""
    path = CONFIGS / f"{chosen.config}.yaml"
    given: dict[str, Any] = {"source": str(path), "environment": {**os.environ, "GNNFLOW_DATA": chosen.data}}
    ranks, overrides = PATHS[name]
    train = load_config(path.read_text(), workspace=workspace, **given).train
    assert isinstance(train, MiniBatchConfig)
    batch_size = train.batch_size
    if batch_size % ranks:
        sys.exit(f"{batch_size} targets per step cannot be divided equally among {ranks} ranks")
    cluster = "{kind: synchronous}" if ranks == 1 else "{kind: local, workers: 4, memory_limit: 0}"
    own = [f"cluster={cluster}", f"seed={seed}", f"train.workers={ranks}", f"train.batch_size={batch_size // ranks}"]
    overrides = (*own, *overrides, *chosen.overrides)
    return load_config(path.read_text(), overrides=overrides, workspace=workspace, **given)


def scores(chosen: argparse.Namespace, name: str, workspace: str) -> list[float]:
    """Return the test metric of every seed."""
    configs = [config_of(chosen, workspace, name=name, seed=seed) for seed in range(chosen.seeds)]
    ranks, _ = PATHS[name]
    metric = f"test.{configs[0].train.metric}"
    with (
        torch_kernels() if name == "torch" else nullcontext(),
        Cluster(configs[0].cluster) if ranks > 1 else nullcontext() as cluster,
    ):
        return [pipeline.run(StageContext.of(config, cluster)).metrics[metric] for config in configs]


def row(name: str, values: Sequence[float], first: Sequence[float]) -> str:
    """Return a path's line of the table."""
    spread = [statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0 for each in (values, first)]
    gap = statistics.mean(values) - statistics.mean(first)
    error = (spread[0] ** 2 + spread[1] ** 2) ** 0.5
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"| {name} | {statistics.mean(values):.4f} +- {deviation:.4f} | {gap:+.4f} +- {error:.4f} |"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("GNNFLOW_DATA", "data"), help="folder of the public graphs")
    parser.add_argument("--config", default="cora", help="a file of configs/, without its ending")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 .. N-1")
    parser.add_argument("--only", default="", help=f"paths, separated by '; ': {'; '.join(PATHS)}")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    return parser.parse_args()


def main() -> None:
    """Train on every path and print."""
    chosen = arguments()
    names = [name for name in PATHS if not chosen.only or name in chosen.only.split("; ")]
    print(f"| {chosen.config}, {chosen.seeds} seeds | test, mean +- std | from the first, +- standard error |")
    print("|---|---|---|")
    first: list[float] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="gnnflow-paths-") as workspace:
            values = scores(chosen, name, workspace)
        first = first or values
        print(row(name, values, first), flush=True)


if __name__ == "__main__":
    main()
