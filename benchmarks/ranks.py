"""Targets per second of 1, 2, 4 and 8 ranks of one thread, in turns, as ratios to one rank: one command, no data.

    python benchmarks/ranks.py [--ranks 1,2,4,8] [--seconds 200] [--data FOLDER] [--save measured.json]

GraphSAGE of 2 layers, hidden 64, fan-out 15 then 10, over all training targets of a generated graph. Two ways to grow:

- weak: --batch-size targets on each rank, as AGL's experiments do: n ranks take n times as many targets per step.
- strong: --batch-size targets per step over all ranks, so that every number of ranks trains the same model.

Each rank is one thread (--prefetch 0: it builds its own blocks) or two (--prefetch 2: and a reader). All run on one
cluster, whose workers stay on cores of their own where there are enough; the driver and the scheduler are not pinned.
Each turn trains with every number of ranks: what else the machine does meanwhile concerns all of them. The first epoch
of each training, which reads and checks the files, is not among the times. Nothing is scored. `waits` is the share of
a rank's time that it waits for others (the mean over the ranks); `CPU` is what the workers computed per target, which
a busy machine changes little: what several ranks compute more than one bounds their gain.

Turns begin until --seconds have passed, at most --turns, each line as it is measured. At the end the medians over the
turns, and, of weak growth, what `simulator.py` says of the same ranks from steps that they took apart; --save keeps
that for `scaling.py --load`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distributed import Client
from placing import cores, pin_workers
from rank_jobs import MODELS, config_of, job_of, make_shards, with_batch
from scaling import validation_table
from step_times import answers, apart, network_of, seconds_per_push
from waiting import count_computing, count_waits, seconds_computed, seconds_waited

from gnnflow.cluster import Cluster
from gnnflow.config import MiniBatchConfig
from gnnflow.progress import Silent
from gnnflow.stages.base import StageContext
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.batches import plan_epoch
from gnnflow.train.ranks.gang import train_on_ranks


@dataclass(frozen=True)
class Speed:
    """Of one training: median targets per second over its epochs, share of waiting, last loss.

    seconds: of a step, and computed: by the process of one rank meanwhile; cpu: seconds of all workers per target,
    those of the beginning included.
    """

    targets_per_second: float
    waits: float
    cpu: float
    loss: float
    seconds: float
    computed: float


def speed_of(job: TrainJob, client: Client) -> Speed:
    """Train and return how fast that was."""
    steps = job.train.epochs * steps_per_epoch(job)
    busy, waited = sum(client.run(time.process_time).values()), sum(client.run(seconds_waited).values())
    before = sum(client.run(seconds_computed).values())
    result = train_on_ranks(job, client, progress=Silent()).result
    computed = sum(client.run(seconds_computed).values()) - before
    busy, waited = sum(client.run(time.process_time).values()) - busy, sum(client.run(seconds_waited).values()) - waited
    whole = sum(row["seconds"] for row in result.history) * job.train.workers
    rows, later = result.history[1:], steps - steps // job.train.epochs
    return Speed(
        statistics.median(row["samples_per_second"] for row in rows),
        waited / whole,
        busy / (job.train.epochs * sum(entry.num_samples for entry in job.entries)),
        rows[-1]["train_loss"],
        sum(row["seconds"] for row in rows) / later,
        computed / later / job.train.workers,
    )


def steps_per_epoch(job: TrainJob) -> int:
    """Return how many steps each rank takes in an epoch."""
    train = job.train
    assert isinstance(train, MiniBatchConfig)
    return len(plan_epoch(job.entries, seed=0, epoch=0, batch_size=train.batch_size, world_size=train.workers))


def jobs_of(job: TrainJob, sizes: Sequence[int], *, batch_size: int) -> dict[str, TrainJob]:
    """Return the trainings of one turn by name; one rank grows neither way."""
    found = {}
    for ranks in sizes:
        found[f"{ranks} weak"] = with_batch(job, ranks=ranks, batch_size=batch_size)
        if ranks > 1:
            found[f"{ranks} strong"] = with_batch(job, ranks=ranks, batch_size=batch_size // ranks)
    return found


def line(name: str, speed: Speed, ratio: float) -> str:
    """Return what is said of a training."""
    return (
        f"{name:>10}: {speed.targets_per_second:9,.0f} targets/s  {ratio:5.2f} x  {1e3 * speed.seconds:7.1f} ms/step  "
        f"waits {speed.waits:4.0%}  CPU {1e6 * speed.cpu:4.0f} us/target  loss {speed.loss:.4f}"
    )


def measure(chosen: argparse.Namespace, job: TrainJob, client: Client, found: dict[str, Any]) -> dict[str, list[Speed]]:
    """Train in turns and print; returns the turns by training, and puts the steps of ranks apart into found."""
    jobs = jobs_of(job, chosen.ranks, batch_size=chosen.batch_size)
    speeds: dict[str, list[Speed]] = {name: [] for name in jobs}
    begin = time.monotonic()
    for turn in range(chosen.turns):
        turn_begin = time.monotonic()
        print(f"turn {turn + 1}, load {os.getloadavg()[0]:.1f}", flush=True)
        for name, each in jobs.items():
            if name.endswith("weak"):
                add_apart(found, each, client)
            speeds[name].append(speed_of(each, client))
            if name.endswith("weak"):
                kind = "read" if chosen.prefetch else "real"
                found["ranks"][str(each.train.workers)][kind].append(
                    (speeds[name][-1].seconds, speeds[name][-1].computed)
                )
            ratio = speeds[name][-1].targets_per_second / next(iter(speeds.values()))[-1].targets_per_second
            print(line(name, speeds[name][-1], ratio), flush=True)
        if 2 * time.monotonic() - turn_begin - begin > chosen.seconds:
            break
    return speeds


def add_apart(found: dict[str, Any], job: TrainJob, client: Client) -> None:
    """Measure the steps of the same ranks apart, without readers, and once the network between them."""
    ranks = job.train.workers
    each = found["ranks"].setdefault(str(ranks), {"steps": [], "real": [], "read": [], "served": []})
    each["steps"].append(apart(without_reader(job), client, ranks=ranks).to_document())
    if ranks > 1 and "network" not in each:
        each["network"] = asdict(network_of(client, ranks=ranks))


def without_reader(job: TrainJob) -> TrainJob:
    """Return the same training of ranks that make their batches in turn."""
    return replace(job, train=job.train.model_copy(update={"prefetch": 0}))


def summary(speeds: dict[str, list[Speed]]) -> str:
    """Return the medians over the turns as a Markdown table."""
    one = [speed.targets_per_second for speed in next(iter(speeds.values()))]
    rows = ["| ranks | targets/s | ratio, median of turns | best turn to best turn | waits |", "|---" * 5 + "|"]
    for name, turns in speeds.items():
        each = [speed.targets_per_second for speed in turns]
        ratio = statistics.median(fast / slow for fast, slow in zip(each, one, strict=True))
        waits = statistics.median(speed.waits for speed in turns)
        rows.append(
            f"| {name} | {statistics.median(each):,.0f} | {ratio:.2f} | {max(each) / max(one):.2f} | {waits:.0%} |"
        )
    return "\n".join(rows)


def run(chosen: argparse.Namespace) -> None:
    """Make the shards, measure and print."""
    there = cores()
    with Cluster(config_of(chosen, ranks=max(chosen.ranks), batch_size=chosen.batch_size).cluster) as cluster:
        config = config_of(
            chosen, ranks=1, batch_size=chosen.batch_size, prefetch=chosen.prefetch, cache=chosen.cache, threads=1
        )
        make_shards(StageContext.of(config, cluster))
        client: Any = cluster.dask_client()
        client.wait_for_workers(max(chosen.ranks))
        placed = pin_workers(client, threads=2 if chosen.prefetch else 1)
        client.run(count_waits)
        client.run(count_computing)
        print(f"{sum(map(len, there))} processors on {len(there)} cores; a rank has {placed[:2] or 'none'} of its own")
        found: dict[str, Any] = {"cores": len(there), "load": os.getloadavg()[0], "model": chosen.model, "ranks": {}}
        found |= {"pinned": len(placed[0]) if placed else 0, "answers": [0.0]}
        speeds = measure(chosen, job_of(config, cluster), client, found)
        if len(chosen.ranks) > 1:
            found["answers"] = answers(client, without_reader(job_of(config, cluster)))
            size = sum(found["ranks"]["1"]["steps"][0]["clock"]["bucket_bytes"])
            callers = {"alone": 1, "many": max(chosen.ranks) - 1}
            found["push"] = {
                name: seconds_per_push(client, model_bytes=size, callers=each) for name, each in callers.items()
            }
    print(f"\n{summary(speeds)}\n\n{validation_table(found, steps=200, seed=0)}", flush=True)
    turns = {name: [asdict(speed) for speed in each] for name, each in speeds.items()}
    print(json.dumps({"bench": "ranks", "cores": len(there), "load": os.getloadavg()[0], "turns": turns}))
    if chosen.save:
        chosen.save.write_text(json.dumps(found))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the graph, kept; without it one that is deleted")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--nodes", type=int, default=364_089, help="a tenth are targets, nine tenths of these train")
    parser.add_argument("--edges", type=int, default=3_640_890)
    parser.add_argument("--model", choices=tuple(MODELS), default="sage")
    parser.add_argument("--ranks", default="1,2,4,8", help="1 first: it is what the others are compared with")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=150.0, help="no turn begins that would end later")
    parser.add_argument("--epochs", type=int, default=6, help="measured ones, after a first that is not")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--shard-size", type=int, default=2048)
    parser.add_argument("--prefetch", type=int, default=0)
    parser.add_argument("--cache", default="2GiB", help="of decoded shards: here all of them, on every rank")
    chosen = parser.parse_args()
    chosen.ranks = [int(ranks) for ranks in chosen.ranks.split(",")]
    if chosen.ranks[0] != 1:
        parser.error("--ranks begins with 1: it is what the others are compared with")
    return chosen


def main() -> None:
    """Measure in the folder given, or in one that is deleted."""
    chosen = arguments()
    if chosen.data is not None:
        run(chosen)
        return
    with tempfile.TemporaryDirectory(prefix="gnnflow-ranks-") as folder:
        chosen.data = Path(folder)
        run(chosen)


if __name__ == "__main__":
    main()
