"""Commands in the wrong order, on damaged artifacts or with odd arguments, and what a good one gives."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.command_line import Shown, run_cli
from tests.robustness.case import Case, accepted, either, nothing_odd, refused
from tests.robustness.file_cases import BROKEN_BYTES, Rewrite
from tests.robustness.inputs import Inputs, Spoil, both, command, disk, key, line
from tests.robustness.registry_cases import holding

STAGES = ("ingest", "select", "flat", "train", "infer", "run", "publish", "score")


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _stages()
    yield from _damaged()


def _stages() -> Iterator[Case]:
    for stage in ("select", "flat", "train", "infer"):
        yield refused(f"{stage} before ingest", command(stage), "ingest", "gnnflow ingest", "gnnflow run")
    yield refused("publish before a run", command("publish"), "ingest|run")
    yield refused("score before publish", command("score"), "publish")
    for stage in STAGES:
        if stage != "flat":
            yield refused(f"{stage} without a config", line(stage), "CONFIG", usage=True)
        yield refused(
            f"{stage} with two configs", line(stage, "a.yaml", "b.yaml"), "b.yaml|unexpected|extra", usage=True
        )
        yield refused(
            f"{stage} with an unknown flag", line(stage, "{folder}/config.yaml", "--nonsense"), "--nonsense", usage=True
        )
        if stage != "ingest":
            yield either(
                f"{stage} --json of a missing config",
                line(stage, "{folder}/none.yaml", "--json"),
                "none.yaml",
                check=nothing_odd,
            )
    yield refused("an unknown command", line("frobnicate"), "frobnicate", usage=True)
    yield refused("an unknown flag", line("--frobnicate"), "--frobnicate", usage=True)
    yield refused("--set without a value", line("run", "{folder}/config.yaml", "--set"), "--set", usage=True)
    for words, word in {
        "": "-n|CONFIG|tables",
        "-n {folder}/nodes.parquet": "-e|tables",
        "-e {folder}/edges.parquet": "-n|tables",
        "{folder}/config.yaml -n a -e b": "CONFIG",
        "{folder}/config.yaml --hops 3": "flat.hops",
        "{folder}/config.yaml --sampling none": "neighbors.sampling",
        "-n {folder}/none.parquet -e {folder}/edges.parquet": "none.parquet",
    }.items():
        yield refused(f"flat {words!r}", line("flat", *words.split()), word)
    for sampling in (
        "",
        ":",
        "uniform",
        "uniform:",
        "uniform:0,0",
        "uniform:-1,2",
        "uniform:a",
        "uniform:1,2,3",
        "best:3,3",
        "none:3",
        "uniform:1e3,2",
        "uniform:9" + "9" * 40 + ",-1",
        "uniform:²,2",
    ):
        yield either(
            f"flat --sampling {sampling[:16]!r}",
            line(
                "flat",
                "-n",
                "{folder}/nodes.parquet",
                "-e",
                "{folder}/edges.parquet",
                "--sampling",
                sampling,
                "--workspace",
                "{folder}/runs",
                "--set",
                "cluster.kind=synchronous",
            ),
            "sampling",
            check=nothing_odd,
        )
    for hops in ("0", "-1", "17", "9" * 30):
        yield refused(
            f"flat --hops {hops[:8]}",
            line("flat", "-n", "{folder}/nodes.parquet", "-e", "{folder}/edges.parquet", "--hops", hops),
            "hops|layers",
            usage=True,
        )
    yield refused("flat --hops x", line("flat", "--hops", "x"), "--hops", usage=True)
    yield from _sweeps()
    yield accepted("a run asked twice", command("run"), check=_again)
    yield accepted(
        "--json is one object",
        command("run", "--json"),
        check=_one_object,
    )
    yield accepted(
        "a work folder that another version left",
        both(disk(holding("runs/work/ingest/other/nodes_read/00000.json", "{}")), command("ingest")),
    )


def _sweeps() -> Iterator[Case]:
    for name, matrix, word in (
        ("is a list", ["gcn"], "matrix"),
        ("is a number", 5, "matrix"),
        ("holds no values", {"seed": []}, "matrix"),
        ("holds a value", {"seed": 1}, "matrix"),
        ("has two equal runs", {"seed": [0, 0]}, "two runs"),
        ("has a key that is none", {"train.nonsense": [1]}, "train.nonsense"),
        ("has an empty key", {"": [1]}, "matrix|=1"),
        ("has a key with an empty part", {"train..lr": [1]}, "train..lr"),
        ("has nothing but wrong values", {"train.lr": [-1, "x"]}, "train.lr"),
        ("is too large", {"seed": [*range(400)], "train.epochs": [*range(1, 400)]}, "159600 runs"),
    ):
        spoil = both(command("sweep"), lambda i, matrix=matrix: i.config.update(matrix=matrix))
        yield refused(f"sweep: the matrix {name}", spoil, word)
    one = both(command("run"), lambda i: i.config.update(matrix={"seed": [0]}))
    yield refused("run with a matrix", one, "gnnflow sweep")
    exploding = both(command("run"), key("train.lr", 1e30), key("train.optimizer", "sgd"))
    yield refused(
        "run where the loss explodes",
        exploding,
        "training loss",
        "runs/failed/train/",
        "gnnflow inspect",
        leaves=("runs/artifacts/", "runs/failed/train/"),
    )
    yield refused("inspect of a table", line("inspect", "{folder}/nodes.parquet"), "nodes.parquet", "not a batch")
    yield refused("inspect of nothing", line("inspect", "{folder}/none"), "none", "no such file")
    yield refused("inspect of a folder", line("inspect", "{folder}"), "folder")
    yield refused("inspect without a file", line("inspect"), "FILE", usage=True)


def _damaged() -> Iterator[Case]:
    """What an earlier command made is spoilt before the next one reads it."""
    store, shards = "ingest/*/", "flat/*/shards/"
    manifest, edges = store + "manifest.json", store + "edges-00001.parquet"
    cut, zeros = BROKEN_BYTES["without its last bytes"], BROKEN_BYTES["zeros"]
    for name, file, change, words in (
        ("a manifest is cut", manifest, cut, ("JSON", "run again")),
        ("a manifest has a further key", manifest, _with_key("extra", 1), ("not a manifest",)),
        ("a manifest has another digest", manifest, _with_key("digest", "0"), ("digest",)),
        ("edges are missing", edges, None, ("missing",)),
        ("edges are cut", edges, cut, ("bytes",)),
        ("edges are zeros", edges, zeros, ("run again",)),
    ):
        spoil = both(command("flat"), disk(_after("ingest", "select"), _changed(file, change)))
        yield refused(f"flat where {name}", spoil, file.rpartition("/")[2], *words)
    for name, file, change, word in (
        ("a shard is cut", shards + "train-00000.parquet", cut, "bytes"),
        ("a shard is zeros", shards + "train-00000.parquet", zeros, "run again"),
    ):
        spoil = both(command("train"), disk(_after("ingest", "select", "flat"), _changed(file, change)))
        yield refused(f"train where {name}", spoil, file.rpartition("/")[2], word)


def _after(*stages: str) -> Spoil:
    """Run stages on the inputs as they lie."""

    def spoil(inputs: Inputs) -> None:
        for stage in stages:
            done = run_cli([stage, str(inputs.config_file)])
            assert done.code == 0, done.err

    return spoil


def _changed(pattern: str, change: Rewrite | None) -> Spoil:
    """Rewrite the one artifact's file of that name, or delete it."""

    def spoil(inputs: Inputs) -> None:
        (file,) = (inputs.workspace / "artifacts").glob(pattern)
        if change is None:
            file.unlink()
        else:
            file.write_bytes(change(file.read_bytes()))

    return spoil


def _with_key(name: str, value: object) -> Rewrite:
    return lambda held: json.dumps({**json.loads(held), name: value}).encode()


def _again(inputs: Inputs, shown: Shown) -> list[str]:
    before = {file: file.read_bytes() for file in inputs.workspace.rglob("*.parquet")}
    second = run_cli(inputs.arguments())
    found = [] if second.code == 0 and "nothing to do" in second.err else [f"the second run said {second.err[-200:]}"]
    return found + [f"{file} changed" for file, held in before.items() if file.read_bytes() != held]


def _one_object(inputs: Inputs, shown: Shown) -> list[str]:
    return [] if {"run", "metrics"} <= set(json.loads(shown.out)) else [shown.out]
