"""Targets per second of 1, 2, 4 and 8 ranks relative to one rank, in turns, and the simulated steps.

    python benchmarks/ranks.py [--ranks 1,2,4,8] [--folder FOLDER] [--save measured.json]

GraphSAGE of 2 layers, hidden 64, fan-out 15 then 10, over all training targets of a generated graph. Two ways to grow:
weak, --batch-size targets on each rank, as AGL's experiments do; strong, --batch-size targets per step over all ranks,
so that every number of ranks trains the same model.

Each rank is one thread (--prefetch 0: it builds its own blocks) or two (--prefetch 2: and a reader). All run on one
cluster, whose workers stay on separate cores if there are enough; the driver and the scheduler are not pinned.
Each turn trains with every number of ranks. The times exclude the first epoch of each training, which reads and checks
the files. Nothing is scored. `waits` is the share of a rank's time that it waits for others; `CPU` is the processor
time of the workers per target, which a busy machine changes little: the extra work of several ranks bounds their gain.

For weak growth, the steps of the same ranks are also measured apart, without an exchange: by the clock, which includes
other programs, and by the thread's processor time; with the moments in the backward pass when each bucket of gradients
is full, and the network between the ranks. From these `simulator.py` computes a step of ranks together, and --save
keeps them for `scaling.py`.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from harness import FOLDER, Benchmark, Chosen, Found, Option, folder_of, numbers, run, tell
from rank_jobs import (
    MODELS,
    config_of,
    cores,
    count_computing,
    count_waits,
    job_of,
    make_shards,
    pin_workers,
    seconds_computed,
    seconds_waited,
    with_batch,
)
from simulator import ANSWERS, PARTS, Measured, Network, Placing, all_reduced, from_document
from step_times import apart, network_of

from gnnflow.cluster import Cluster
from gnnflow.config import MiniBatchConfig
from gnnflow.progress import Silent
from gnnflow.stages.base import StageContext
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.batches import plan_epoch
from gnnflow.train.ranks.gang import train_on_ranks


@dataclass(frozen=True)
class Speed:
    """One training: median targets per second over its epochs, share of waiting, last loss.

    seconds: of a step; computed: processor seconds of one rank in it; cpu: seconds of all workers per target, start
    included.
    """

    targets_per_second: float
    waits: float
    cpu: float
    loss: float
    seconds: float
    computed: float


def speed_of(job: TrainJob, client: Client) -> Speed:
    """Train and return the speed."""
    steps = job.train.epochs * steps_per_epoch(job)
    counts = time.process_time, seconds_waited, seconds_computed
    before = [sum(client.run(each).values()) for each in counts]
    result = train_on_ranks(job, client, progress=Silent()).result
    busy, waited, computed = (sum(client.run(each).values()) - at for each, at in zip(counts, before, strict=True))
    rows, later = result.history[1:], steps - steps // job.train.epochs
    return Speed(
        statistics.median(row["samples_per_second"] for row in rows),
        waited / (sum(row["seconds"] for row in result.history) * job.train.workers),
        busy / (job.train.epochs * sum(entry.num_samples for entry in job.graph.entries)),
        rows[-1]["train_loss"],
        sum(row["seconds"] for row in rows) / later,
        computed / later / job.train.workers,
    )


def steps_per_epoch(job: TrainJob) -> int:
    """Return the number of steps of each rank in an epoch."""
    train = job.train
    assert isinstance(train, MiniBatchConfig)
    return len(plan_epoch(job.graph.entries, seed=0, epoch=0, batch_size=train.batch_size, world_size=train.workers))


def jobs_of(job: TrainJob, sizes: Sequence[int], *, batch_size: int) -> dict[tuple[str, int], TrainJob]:
    """Return the trainings of one turn by growth and ranks; one rank has no growth."""
    found = {}
    for ranks in sizes:
        found["weak", ranks] = with_batch(job, ranks=ranks, batch_size=batch_size)
        if ranks > 1:
            found["strong", ranks] = with_batch(job, ranks=ranks, batch_size=batch_size // ranks)
    return found


def add_apart(found: Found, job: TrainJob, client: Client) -> None:
    """Measure the steps of the same ranks apart, without readers, and once the network between them."""
    ranks = job.train.workers
    each = found["ranks"].setdefault(str(ranks), {"steps": [], "real": []})
    each["steps"].append(apart(without_reader(job), client, ranks=ranks).to_document())
    if ranks > 1 and "network" not in each:
        each["network"] = asdict(network_of(client, ranks=ranks))


def without_reader(job: TrainJob) -> TrainJob:
    """Return the same training of ranks that make their batches in turn."""
    return replace(job, train=job.train.model_copy(update={"prefetch": 0}))


def measure(chosen: Chosen, folder: Path) -> tuple[dict[tuple[str, int], list[Speed]], Found]:
    """Return the trainings of every turn, and the inputs of the simulator."""
    sizes = numbers(chosen.ranks)
    assert sizes[0] == 1, "one rank comes first: the others are compared with it"
    config = config_of(chosen, folder, ranks=1, prefetch=chosen.prefetch, cache=chosen.cache, threads=1)
    with Cluster(config_of(chosen, folder, ranks=max(sizes)).cluster) as cluster:
        make_shards(StageContext.of(config, cluster))
        client: Any = cluster.dask_client()
        client.wait_for_workers(max(sizes))
        placed = pin_workers(client, threads=2 if chosen.prefetch else 1)
        client.run(count_waits)
        client.run(count_computing)
        found: Found = {"cores": len(cores()), "load": os.getloadavg()[0], "model": chosen.model, "ranks": {}}
        found |= {"pinned": len(placed[0]) if placed else 0, "prefetch": chosen.prefetch}
        job = job_of(config, cluster)
        jobs = jobs_of(job, sizes, batch_size=chosen.batch_size)
        speeds: dict[tuple[str, int], list[Speed]] = {name: [] for name in jobs}
        for turn in range(chosen.turns):
            tell(f"turn {turn + 1}, load {os.getloadavg()[0]:.1f}")
            for name, each in jobs.items():
                if name[0] == "weak":
                    add_apart(found, each, client)
                speeds[name].append(speed_of(each, client))
                if name[0] == "weak":
                    told = speeds[name][-1]
                    found["ranks"][str(name[1])]["real"].append((told.seconds, told.computed))
    return speeds, found


def joined(turns: Sequence[Found], clock: str = "clock") -> Measured:
    """Return the steps of all turns, of the same ranks, by the clock or as "computed"."""
    each = [from_document(turn[clock]) for turn in turns]
    parts: Found = {name: np.concatenate([getattr(one, name) for one in each], axis=1) for name in PARTS}
    return replace(each[0], **parts)


def scaled(measured: Measured, factor: float) -> Measured:
    """Return steps that take so many times as long."""
    return replace(measured, **{name: getattr(measured, name) * factor for name in PARTS})


def validation(found: Mapping[str, Any], *, steps: int, seed: int) -> dict[int, tuple[float, float]]:
    """Return by number of ranks the seconds of a step: simulated, and of real ranks on the same machine.

    Steps are longer than apart in proportion to the processor time of real ranks.
    """
    result = {}
    for name, each in found["ranks"].items():
        ranks, network = int(name), Network(**each.get("network", {"latency": 0.0, "bandwidth": 1.0}))
        own = joined(each["steps"], "computed")
        real, computed = np.mean(each["real"], axis=0)
        keys: Found = {"steps": steps, "seed": seed, "ranks": ranks, "prefetch": found["prefetch"]}
        keys |= {"hosts": hosts_of(found, ranks), "answers": ANSWERS}
        result[ranks] = all_reduced(scaled(own, computed / own.seconds.mean()), network, **keys), float(real)
    return result


def hosts_of(found: Mapping[str, Any], ranks: int) -> Placing:
    """Return the placing of real ranks: pinned to separate cores, or on the whole machine."""
    pinned = found.get("pinned", 0)
    return Placing(ranks=1, cores=pinned) if pinned else Placing(ranks=ranks, cores=found["cores"])


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield both kinds of growth: medians over the turns, and for weak growth the simulated step."""
    with folder_of(chosen.folder) as folder:
        speeds, found = measure(chosen, folder)
    if chosen.save:
        Path(chosen.save).write_text(json.dumps(found))
    simulated = validation(found, steps=200, seed=0)
    one = [each.targets_per_second for each in next(iter(speeds.values()))]
    for (growth, ranks), turns in speeds.items():
        each = [speed.targets_per_second for speed in turns]
        ratio = statistics.median(fast / slow for fast, slow in zip(each, one, strict=True))
        seconds, waits, cpu = (
            statistics.median(getattr(speed, name) for speed in turns) for name in ("seconds", "waits", "cpu")
        )
        guess, real = simulated[ranks] if growth == "weak" else (None, 1.0)
        beside = (guess * 1e3, guess / real) if guess else (None, None)
        shown = (growth, ranks, statistics.median(each), ratio, max(each) / max(one), seconds * 1e3, f"{waits:.0%}")
        yield (*shown, cpu * 1e6, *beside, turns[-1].loss)


SIZES = {
    "nodes": Option(364_089, "a tenth are targets, nine tenths of these train"),
    "edges": 3_640_890,
    "model": Option("sage", choices=tuple(MODELS)),
    "ranks": Option("1,2,4,8", "1 first: the others are compared with it"),
    "turns": 5,
    "epochs": Option(6, "measured ones, after a first that is not"),
    "batch_size": 1024,
    "shard_size": 2048,
    "prefetch": 0,
    "cache": Option("2GiB", "of decoded shards: here all of them, on every rank"),
}
SMALL = {"nodes": 2_000, "edges": 10_000, "ranks": "1,2", "turns": 1, "epochs": 1, "batch_size": 32, "shard_size": 64}
BENCH = Benchmark(
    columns=(
        "growth",
        "ranks",
        "targets/s",
        "x one rank",
        "best x best",
        "ms per step",
        "waits",
        "CPU us/target",
        "simulated ms",
        "simulated / real",
        "loss",
    ),
    rows=rows,
    options={"folder": FOLDER, "save": Option("", "file for what was measured"), **SIZES},
    small=SMALL,
)


if __name__ == "__main__":
    run(BENCH)
