"""The validation metric against epochs on 1, 2 and 4 ranks at equal batches over all ranks (AGL, figure 7), as a plot.

    GNNFLOW_DATA=data python benchmarks/convergence.py [--ranks 1,2,4] [--plot docs/images/convergence.png]

`configs/facebook_pages.yaml`, with --batch-size targets per step over all ranks and no early stop. Ranks deal the
targets to other batches of the same size and draw their dropout each on their own, so curves meet within the noise of
training. Prints a table and the largest difference between two curves in any of the last --last epochs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from pathlib import Path

from accuracy import CONFIGS
from plots import draw_lines

from gnnflow.cluster import Cluster
from gnnflow.config import Config, load_config
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact

Curves = dict[int, list[float]]


def config_of(chosen: argparse.Namespace, workspace: str, *, ranks: int) -> Config:
    """Return the run of so many ranks."""
    path = CONFIGS / "facebook_pages.yaml"
    overrides = [
        f"train.workers={ranks}",
        f"train.batch_size={chosen.batch_size // ranks}",
        f"train.epochs={chosen.epochs}",
        f"train.lr={chosen.lr}",
        "train.patience=0",
        f"model.dropout={chosen.dropout}",
        f"cluster={{kind: local, workers: {max(chosen.ranks)}, memory_limit: 0}}",
        f"seed={chosen.seed}",
    ]
    if chosen.servers and ranks > 1:
        overrides.append(f"train.updater={{kind: parameter_server, servers: {chosen.servers}, mode: {chosen.mode}}}")
    return load_config(
        path.read_text(),
        overrides=overrides,
        workspace=workspace,
        source=str(path),
        environment={**os.environ, "GNNFLOW_DATA": chosen.data},
    )


def curves(chosen: argparse.Namespace) -> Curves:
    """Return the validation metric of each epoch by number of ranks."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="gnnflow-convergence-") as workspace:
        configs = {ranks: config_of(chosen, workspace, ranks=ranks) for ranks in chosen.ranks}
        with Cluster(configs[chosen.ranks[0]].cluster) as cluster:
            for ranks, config in configs.items():
                context = StageContext.of(config, cluster)
                for stage in ("ingest", "select", "flat"):
                    make_artifact(context, stage)
                history = make_artifact(context, "train").facts(TrainFacts).history
                found[ranks] = [row[f"valid_{config.train.metric}"] for row in history]
    return found


def widest_gap(found: Curves, *, last: int) -> float:
    """Return the largest difference between two curves in one of the last epochs."""
    pairs = itertools.combinations(found.values(), 2)
    return max((abs(x - y) for one, two in pairs for x, y in zip(one[-last:], two[-last:], strict=True)), default=0.0)


def table(found: Curves, *, every: int) -> str:
    """Return the curves as a Markdown table of some epochs and the last one."""
    epochs = len(next(iter(found.values())))
    shown = sorted({*range(0, epochs, every), epochs - 1})
    lines = ["| epoch | " + " | ".join(map(str, shown)) + " |", "|---" * (len(shown) + 1) + "|"]
    for ranks, values in found.items():
        named = "1 rank" if ranks == 1 else f"{ranks} ranks"
        lines.append(f"| {named} | " + " | ".join(f"{values[epoch]:.4f}" for epoch in shown) + " |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("GNNFLOW_DATA", "data"), help="folder of the public graphs")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=512, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.001, help="a tenth of the config's, so that the rise is seen")
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--servers", type=int, default=0, help="train through so many parameter servers instead")
    parser.add_argument("--mode", default="synchronous", choices=("synchronous", "bounded", "asynchronous"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--last", type=int, default=5)
    parser.add_argument("--plot", type=Path)
    chosen = parser.parse_args()
    chosen.ranks = [int(ranks) for ranks in chosen.ranks.split(",")]
    if odd := [ranks for ranks in chosen.ranks if chosen.batch_size % ranks]:
        parser.error(f"--batch-size {chosen.batch_size} cannot be divided equally among {odd[0]} ranks")
    return chosen


def main() -> None:
    """Train, draw and print."""
    chosen = arguments()
    found = curves(chosen)
    if chosen.plot:
        lines = {("1 rank" if ranks == 1 else f"{ranks} ranks"): (range(len(y)), y) for ranks, y in found.items()}
        draw_lines(chosen.plot, lines, x_label="epoch", y_label="validation accuracy, facebook_pages")
    print(table(found, every=max(chosen.epochs // 8, 1)))
    print(f"\nlargest difference in the last {chosen.last} epochs: {widest_gap(found, last=chosen.last):.4f}")


if __name__ == "__main__":
    main()
