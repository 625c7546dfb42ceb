"""MAGNN's table 3 on IMDB: embeddings of the test movies by `gnnflow run`, classes of them by a linear SVM.

    python benchmarks/magnn_svm.py --data DIR [--seeds 3] [--set model.encodes=mean]

The protocol of section 5.3 of the paper: the model is trained on the labels of 400 movies and stopped by those of 400
others; a linear SVM is then trained on the embeddings of 20, 40, 60 and 80 % of the 3,478 test movies and scored on the
rest, ten times each. Prints the macro-F1 and the micro-F1 as a table beside the paper's, in per cent.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from gnnflow.config import Config, load_config
from gnnflow.stages import pipeline
from gnnflow.storage.columns import to_matrix

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "imdb_magnn.yaml"
SHARES = (0.2, 0.4, 0.6, 0.8)
REPEATS = 10
# table 3 of the paper: MAGNN, and HAN, the best of its peers
PAPER = {
    "MAGNN, macro-F1": (59.35, 60.27, 60.66, 61.44),
    "MAGNN, micro-F1": (59.60, 60.50, 60.88, 61.53),
    "HAN, macro-F1": (56.19, 56.15, 57.29, 58.51),
}


def embeddings(config: Config) -> tuple[Any, Any]:
    """Return the embeddings of the test movies and their classes, from a run of all stages."""
    run = pipeline.run_quietly(config)
    folder = Path(run.predictions)
    scored = pq.read_table(sorted(folder.glob("*.parquet")), columns=["id", "embedding"]).sort_by("id")
    movies = pq.read_table(config.graph.node_tables["movie"], columns=["id", "label", "split"]).sort_by("id")
    assert scored["id"].equals(movies["id"])
    test = np.flatnonzero(np.array(movies["split"].to_pylist()) == "test")
    return to_matrix(scored["embedding"])[test], movies["label"].to_numpy()[test]


def svm_scores(rows: Any, labels: Any, share: float) -> list[tuple[float, float]]:
    """Return (macro-F1, micro-F1) of a linear SVM trained on a share of the rows, ten times."""
    found = []
    for repeat in range(REPEATS):
        train, rest, of_train, of_rest = train_test_split(
            rows, labels, train_size=share, shuffle=True, random_state=repeat
        )
        predicted = LinearSVC(dual=False).fit(train, of_train).predict(rest)
        found.append(tuple(f1_score(of_rest, predicted, average=kind) for kind in ("macro", "micro")))
    return found


def main() -> None:
    """Train, fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    chosen = parser.parse_args()
    os.environ["GNNFLOW_DATA"] = str(Path(chosen.data).resolve())
    scores: dict[float, list[tuple[float, float]]] = {share: [] for share in SHARES}
    with tempfile.TemporaryDirectory() as workspace:
        for seed in range(chosen.seeds):
            settings = [f"seed={seed}", f"workspace={workspace}", *chosen.set]
            rows, labels = embeddings(load_config(CONFIG.read_text(), overrides=settings))
            for share in SHARES:
                scores[share] += svm_scores(rows, labels, share)
    print(f"| IMDB, per cent | {' | '.join(f'{share:.0%}' for share in SHARES)} |\n|---|{'---|' * len(SHARES)}")
    for place, name in enumerate(("macro-F1", "micro-F1")):
        held = [[100 * pair[place] for pair in scores[share]] for share in SHARES]
        print(f"| gnnflow, {name} | {' | '.join(f'{np.mean(each):.2f} +- {np.std(each):.2f}' for each in held)} |")
    for name, figures in PAPER.items():
        print(f"| {name} | {' | '.join(map(str, figures))} |")


if __name__ == "__main__":
    main()
