"""Speed-up of synchronous training to 1,024 ranks, simulated from measurements of `ranks.py` on this machine.

    python benchmarks/ranks.py --save measured.json
    python benchmarks/scaling.py --load measured.json [--bandwidth 25 --latency 20] [--plot docs/images/scaling.png]

Clusters of up to --to ranks are simulated, with --latency microseconds, --bandwidth Gbit/s and hosts whose speed has a
--spread, which nothing here measures: one row per assumption, from steps that all take the mean (the network alone) to
steps as long as by the clock. A rank and its reader share a core unless the row says otherwise. Speed-up is samples per
second relative to one rank; AGL reports a slope of 0.8 at 100 workers. `simulator.py` has the model and
its assumptions. Same measurements and seed, same figures. Without --load it measures 1 and 2 ranks first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from harness import FOLDER, PLOT, Benchmark, Chosen, Found, Option, draw_lines, folder_of, run
from ranks import SIZES, SMALL, joined, measure, scaled
from simulator import ALONE, ANSWERS, PARTS, Measured, Network, Placing, all_reduced, speed_ups

RANKS = (2, 4, 8, 16, 64, 100, 256, 1024)
AGL_SLOPE, AGL_RANKS = 0.8, 100
PREFETCH = 2  # the default of training


def merged(each: Sequence[Found]) -> Found:
    """Merge the measurements of several runs of the same kind; the network is from the first one."""
    first, *others = each
    for other in others:
        for ranks, found in other["ranks"].items():
            for name, turns in found.items():
                if isinstance(turns, list):
                    first["ranks"][ranks][name].extend(turns)
    return first


def equal(measured: Measured) -> Measured:
    """Return steps that all take the mean."""
    parts = {name: getattr(measured, name) for name in PARTS}
    return replace(measured, **{name: np.full_like(part, part.mean()) for name, part in parts.items()})


def assumed(found: Mapping[str, Any], chosen: Chosen) -> dict[str, tuple[Measured, Found]]:
    """Return by assumption the steps, and the settings that differ from a rank that shares its core with its reader."""
    turns = found["ranks"]["1"]["steps"]
    own, clock = joined(turns, "computed"), joined(turns)
    hosts = f"hosts {chosen.spread:.0%} apart"
    return {
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


def simulated(found: Mapping[str, Any], chosen: Chosen) -> dict[str, dict[int, float]]:
    """Return the speed-ups on a cluster by assumption and number of ranks."""
    network = Network(chosen.latency * 1e-6, chosen.bandwidth * 1e9 / 8)
    table = {}
    for name, (steps, differs) in assumed(found, chosen).items():
        keys: Found = {"steps": chosen.steps, "seed": chosen.seed, "spread": chosen.spread, "prefetch": PREFETCH}
        keys |= {"hosts": ALONE, "answers": ANSWERS, **differs}
        seconds = {1: all_reduced(steps, network, ranks=1, **keys | {"spread": 0.0})}
        seconds |= {each: all_reduced(steps, network, ranks=each, **keys) for each in RANKS if each <= chosen.to}
        table[name] = speed_ups(seconds)
    return table


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the speed-ups of each assumption, and AGL's slope."""
    if chosen.load:
        found = merged([json.loads(Path(file).read_text()) for file in chosen.load.split(",")])
    else:
        with folder_of(chosen.folder) as folder:
            _, found = measure(chosen, folder)
    table = simulated(found, chosen)
    for name, row in table.items():
        yield name, *(row.get(ranks) for ranks in RANKS), row[AGL_RANKS] / AGL_RANKS if AGL_RANKS in row else None
    yield "AGL's slope", *(AGL_SLOPE * ranks for ranks in RANKS), AGL_SLOPE
    if chosen.plot:
        lines: Any = {name: (list(row), [up / ranks for ranks, up in row.items()]) for name, row in table.items()}
        lines["AGL: 0.8"] = [1, AGL_RANKS], [AGL_SLOPE] * 2
        labels = {"x_label": "ranks", "y_label": "speed-up / ranks"}
        draw_lines(chosen.plot, lines, **labels, logarithmic="x", dashed="AGL: 0.8")


BENCH = Benchmark(
    columns=("speed-up, of what is assumed", *map(str, RANKS), "per rank at 100"),
    rows=rows,
    options={
        "load": Option("", "files that `ranks.py --save` wrote, separated by commas; several are joined"),
        "plot": PLOT,
        "to": Option(1024, "simulate up to so many ranks"),
        "steps": Option(200, "simulated ones"),
        "bandwidth": Option(10.0, "of a link of the cluster, Gbit/s"),
        "latency": Option(50.0, "between two ranks of the cluster, microseconds"),
        "longer": Option(10.0, "of the row whose steps are so many times as long"),
        "spread": Option(0.05, "of the hosts' speed: standard deviation of its logarithm"),
        "seed": 0,
        "folder": FOLDER,
        **SIZES,
    },
    small={**SMALL, "to": 8, "steps": 40},
)


if __name__ == "__main__":
    run(BENCH)
