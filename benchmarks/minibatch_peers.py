"""What `minibatch_dgl.py` and `minibatch_pyg.py` share: the arguments, the arrays and the epochs. Needs no gnnflow."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

BATCH, HIDDEN = 1024, 64
Batches = Callable[[], Iterator[tuple[Tensor, Tensor]]]


def parser_of(doc: str | None, *, epochs: int, threads: int) -> argparse.ArgumentParser:
    """Return the arguments that both have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--threads", type=int, default=threads)
    return parser


def load(chosen: argparse.Namespace) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features, labels, edges [2, E] and seeds of the graph, with torch set up."""
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    with np.load(chosen.graph) as held:
        x, y, edges, seeds = (torch.from_numpy(held[name]) for name in ("x", "y", "edge_index", "seeds"))
    return x, y, edges, seeds


def train(net: nn.Module, batches: Batches, *, epochs: int, prepared: float, versions: dict[str, str]) -> None:
    """Train and print one JSON line. batches: yields logits and labels, which are computed when they are asked for."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    times, spent, loss = [], [], torch.zeros(())
    for _ in range(epochs):
        begin, cpu = time.perf_counter(), time.process_time()
        for logits, labels in batches():
            optimizer.zero_grad()
            loss = functional.cross_entropy(logits, labels)
            loss.backward()
            optimizer.step()
        times.append(time.perf_counter() - begin)
        spent.append(time.process_time() - cpu)
    versions = {"torch": torch.__version__, **versions}
    found = {"times": times, "cpu": spent, "prep_s": prepared, "loss": float(loss.detach()), "versions": versions}
    print(json.dumps(found))
