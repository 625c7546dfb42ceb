"""Speed-up of synchronous and served training to 1,024 ranks, simulated from what this machine measures.

    python benchmarks/scaling.py --data DATA --save measured.json            # measure, validate, simulate, draw
    python benchmarks/scaling.py --load measured.json --bandwidth 25 --latency 20    # another cluster, at once

Measured, on a graph prepared as by `graphflat.py` (GraphSAGE or GAT of 2 layers, fan-out 15 then 10, --batch-size
targets per rank, however many ranks there are):

- steps: n processes of one thread, each of which makes its own batches, train on their shares at the same time, apart,
  without an exchange. What n processes take from each other on this machine, what switching between them costs where
  they share its cores too, is thereby in the figures that predict n ranks of it; what predicts a cluster is the one
  process that was measured alone. Each step is measured by the clock, in which other programs of the machine are too,
  and by what its thread computed: a rank that has a core when it wants one.
- messages: the model's parameters in the buckets that all-reduce sends, and when in the backward pass each is full.
- how much later a rank that makes a batch answers in a round of a sum than one that waits for it.
- what the process of a real rank computes per step, with its part of the sums and all that goes on beside.
- the network of this machine: all-reduces of 256 bytes to 4 MiB between n processes, to which a latency and a
  bandwidth are fitted; a parameter server: pushes of one process, and of as many as there are beside the server's.

Validated: the same n ranks train together (`train_on_ranks`), without and with readers, apart and together in turns,
and their seconds per step stand beside the simulated ones, of as many ranks on as many cores. Then clusters of up to
--ranks ranks are simulated, with --latency microseconds, --bandwidth Gbit/s and hosts whose speed has a --spread, which
nothing here measures: a line for each assumption, from steps that all take the mean (the network alone) to steps as
long as the clock says. A rank and its reader share a core where a line says nothing else. Speed-up is samples per
second over those of one rank; AGL reports a slope of 0.8 at 100 workers. `simulator.py` has the model and its
assumptions, `measuring.py` the measurements. Same measurements and seed, same figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cores import Placing
from measuring import PREFETCH, TOGETHER, measure, model_bytes_of
from plots import draw_lines
from rank_jobs import MODELS
from simulator import ALONE, PARTS, Measured, Network, Servers, all_reduced, from_document, served, speed_ups

RANKS = (1, 2, 4, 8, 16, 32, 64, 100, 128, 256, 512, 1024)
AGL_SLOPE, AGL_RANKS = 0.8, 100
STALENESS = 2
Table = dict[str, dict[int, float]]
Way = Callable[..., float]


def joined(turns: Sequence[dict[str, Any]], clock: str = "clock") -> Measured:
    """Return the steps of all turns, of the same ranks, by the clock or as "computed"."""
    each = [from_document(turn[clock]) for turn in turns]
    parts: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in each], axis=1) for name in PARTS}
    return replace(each[0], **parts)


def merged(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what several runs of the same kind measured as that of one; the network and pushes are the first's."""
    first, *others = each
    for other in others:
        for ranks, found in other["ranks"].items():
            for name, turns in found.items():
                if isinstance(turns, list):
                    first["ranks"][ranks][name].extend(turns)
        first["answers"].extend(other["answers"])
    return first


def scaled(measured: Measured, factor: float) -> Measured:
    """Return steps that take so many times as long."""
    return replace(measured, **{name: getattr(measured, name) * factor for name in PARTS})


def equal(measured: Measured) -> Measured:
    """Return steps that all take the mean."""
    parts = {name: getattr(measured, name) for name in PARTS}
    return replace(measured, **{name: np.full_like(part, part.mean()) for name, part in parts.items()})


def servers_of(found: Mapping[str, Any], *, count: int, staleness: float) -> Servers:
    """Return parameter servers that take pushes as the measured one did."""
    alone, many = found["push"]["alone"], found["push"]["many"]
    service = min(alone, many)
    return Servers(count, service, staleness, overhead=alone - service)


def validation(found: Mapping[str, Any], *, steps: int, seed: int) -> dict[str, tuple[float, float]]:
    """Return by kind of run the seconds of a step: simulated, and of real ranks on the same machine.

    Steps take as much longer than apart as the processes of real ranks computed more.
    """
    result = {}
    drawing: dict[str, Any] = {"steps": steps, "seed": seed}
    for name, each in found["ranks"].items():
        ranks, network = int(name), Network(**each.get("network", {"latency": 0.0, "bandwidth": 1.0}))
        own = joined(each["steps"], "computed")
        keys = drawing | {"ranks": ranks, "hosts": hosts_of(found, ranks), "answers": found["answers"]}
        for kind, prefetch in TOGETHER.items():
            if each[kind]:
                real, computed = np.mean(each[kind], axis=0)
                guess = all_reduced(scaled(own, computed / own.seconds.mean()), network, prefetch=prefetch, **keys)
                result[f"{ranks}, {'with readers' if prefetch else 'all-reduce'}"] = guess, float(real)
        if each["served"]:
            servers, loopback = servers_of(found, count=1, staleness=0), Network(0.0, network.bandwidth)
            guess = served(joined(each["steps"]), loopback, servers, ranks=ranks, **drawing)
            result[f"{ranks}, one server"] = (guess, statistics.mean(each["served"]))
    return result


def hosts_of(found: Mapping[str, Any], ranks: int) -> Placing:
    """Return where real ranks ran: pinned to cores of their own, or on all of the machine."""
    pinned = found.get("pinned", 0)
    return Placing(ranks=1, cores=pinned) if pinned else Placing(ranks=ranks, cores=found["cores"])


def assumed(found: Mapping[str, Any], chosen: argparse.Namespace) -> dict[str, tuple[float, Way]]:
    """Return by assumption the seconds of a step of one rank, and what gives those of n ranks."""
    turns = found["ranks"]["1"]["steps"]
    own, clock = joined(turns, "computed"), joined(turns)
    network = Network(chosen.latency * 1e-6, chosen.bandwidth * 1e9 / 8)
    drawing = {"steps": chosen.steps, "seed": chosen.seed}
    # a rank and its reader share a core
    read = {"spread": chosen.spread, "prefetch": PREFETCH, "hosts": ALONE, "answers": found["answers"]}
    hosts = f"hosts {chosen.spread:.0%} apart"
    given: dict[str, tuple[Measured, dict[str, Any]]] = {
        "equal steps": (equal(own), {"spread": 0.0, "answers": [0.0]}),
        "one core per rank": (own, {"spread": 0.0}),
        f"one core per rank, {hosts}": (own, {}),
        f"{hosts}, no reader": (own, {"prefetch": 0}),
        f"{hosts}, no reader, answers when a batch is made": (own, {"prefetch": 0, "answers": [1.0]}),
        f"{hosts}, the reader on a core of its own": (own, {"hosts": Placing(ranks=1, cores=2)}),
        f"{hosts}, by the ring alone": (own, {"algorithm": "ring"}),
        f"{hosts}, steps {chosen.longer:g} times as long": (scaled(own, chosen.longer), {}),
        f"{hosts}, other programs beside": (clock, {}),
    }
    ways: dict[str, tuple[float, Way]] = {}
    for name, (steps, keys) in given.items():
        way = partial(all_reduced, steps, network, **drawing | read | keys)
        ways[name] = way(ranks=1, spread=0.0), way
    free = Servers(chosen.servers, 0.0, STALENESS)
    served_by = {
        f"{hosts}, staleness {STALENESS} at free servers": (own, free),
        f"{hosts}, other programs beside, staleness {STALENESS} at free servers": (clock, free),
    }
    for name, staleness in (("synchronous", 0), (f"staleness {STALENESS}", STALENESS), ("asynchronous", float("inf"))):
        servers = servers_of(found, count=chosen.servers, staleness=staleness)
        served_by[f"{hosts}, {chosen.servers} servers, {name}"] = (own, servers)
    for name, (steps, servers) in served_by.items():
        way = partial(served, steps, network, servers, **drawing, spread=chosen.spread)
        ways[name] = float(steps.seconds.mean()), way
    return ways


def simulated(found: Mapping[str, Any], chosen: argparse.Namespace) -> Table:
    """Return the speed-ups on a cluster by assumption and number of ranks."""
    counts = [ranks for ranks in RANKS if 1 < ranks <= chosen.ranks]
    return {
        name: speed_ups({1: one} | {ranks: way(ranks=ranks) for ranks in counts})
        for name, (one, way) in assumed(found, chosen).items()
    }


def validation_table(found: Mapping[str, Any], *, steps: int, seed: int) -> str:
    """Return simulated and real steps as a Markdown table."""
    lines = ["| ranks here | simulated, ms per step | real | simulated / real |", "|---" * 4 + "|"]
    for run, (guessed, real) in validation(found, steps=steps, seed=seed).items():
        lines.append(f"| {run} | {guessed * 1e3:.1f} | {real * 1e3:.1f} | {guessed / real:.2f} |")
    return "\n".join(lines)


def report(found: Mapping[str, Any], table: Table, chosen: argparse.Namespace) -> str:
    """Return the validation and the speed-ups as Markdown tables."""
    lines = [validation_table(found, steps=chosen.steps, seed=chosen.seed)]
    counts = list(next(iter(table.values())))
    lines += ["", "| speed-up at ranks | " + " | ".join(map(str, counts)) + " |", "|---" * (len(counts) + 1) + "|"]
    for name, row in table.items():
        lines.append(f"| {name} | " + " | ".join(f"{row[ranks]:.1f}" for ranks in counts) + " |")
    lines.append("| AGL's slope | " + " | ".join(f"{max(AGL_SLOPE * ranks, 1):.1f}" for ranks in counts) + " |")
    return "\n".join(lines)


def draw(table: Table, path: Path) -> None:
    """Draw the speed-up per rank, beside AGL's slope, which was measured to 100 workers."""
    lines: dict[str, Any] = {
        name: (list(row), [times / ranks for ranks, times in row.items()]) for name, row in table.items()
    }
    measured = [ranks for ranks in next(iter(table.values())) if ranks <= AGL_RANKS]
    lines["AGL: 0.8"] = (measured, [AGL_SLOPE] * len(measured))
    labels = {"x_label": "ranks", "y_label": "speed-up / ranks"}
    draw_lines(path, lines, **labels, logarithmic="x", dashed="AGL: 0.8")


def numbers(text: str) -> list[int]:
    """Return different numbers of ranks. Raises ValueError for what is none, which argparse tells."""
    found = sorted({int(number) for number in text.split(",")})
    if found[0] < 1:
        raise ValueError(text)
    return found


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the graph, written there where it has none")
    parser.add_argument("--load", type=Path, nargs="+", help="what --save wrote; several are joined")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--model", choices=tuple(MODELS), default="sage")
    parser.add_argument("--batch-size", type=int, default=1024, help="targets of one rank's step")
    parser.add_argument("--shard-size", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=2, help="measured ones, after a first that is not")
    parser.add_argument("--turns", type=int, default=3, help="times that every number of ranks is measured")
    parser.add_argument(
        "--real", type=numbers, default="1,2,4", help="numbers of ranks to measure and validate with; 1 among them"
    )
    parser.add_argument("--ranks", type=int, default=1024, help="simulate up to so many")
    parser.add_argument("--steps", type=int, default=200, help="simulated ones")
    parser.add_argument("--bandwidth", type=float, default=10.0, help="of a link of the cluster, Gbit/s")
    parser.add_argument("--latency", type=float, default=50.0, help="between two ranks of the cluster, microseconds")
    parser.add_argument("--longer", type=float, default=10.0, help="draw a line of steps so many times as long too")
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--spread", type=float, default=0.05, help="of the hosts' speed: standard deviation of its log")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if (chosen.data is None) == (chosen.load is None):
        parser.error("give either --data or --load")
    if 1 not in chosen.real:
        parser.error("--real needs 1 among its numbers: it is what the others are compared with")
    if chosen.real == [1]:
        parser.error("--real needs another number: answers are measured between two ranks")
    return chosen


def main() -> None:
    """Measure or load, and print."""
    chosen = arguments()
    found = merged([json.loads(file.read_text()) for file in chosen.load]) if chosen.load else measure(chosen)
    if chosen.save:
        chosen.save.write_text(json.dumps(found))
    table = simulated(found, chosen)
    if chosen.plot:
        draw(table, chosen.plot)
    print(report(found, table, chosen))
    servers, size = servers_of(found, count=1, staleness=0), model_bytes_of(found)
    print(f"\n{found['model']}, {size >> 10} KiB, measured on {found['cores']} cores at load {found['load']:.1f}")
    print(f"a push takes a server {1e6 * servers.service:.0f} us and {1e6 * servers.overhead:.0f} us beside")
    print(f"simulated cluster of {chosen.bandwidth:g} Gbit/s and {chosen.latency:g} us")


if __name__ == "__main__":
    main()
