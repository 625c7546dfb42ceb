"""Workspaces: a file in the way, a forbidden or full disk, globs, storage that is not there or wants credentials."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tests.command_line import Shown, run_cli
from tests.robustness.case import Case, accepted, anything, either, refused
from tests.robustness.inputs import Inputs, both, command, disk, key, line

OFFLINE = {  # no answer within a moment, whoever's machine this is
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "NO_PROXY": "*",
}


# Finished tasks, which the next run goes on with once there is room.
KEPT = ("runs/work/",)


# A read-only disk to root too, whom permissions do not bind otherwise.
READ_ONLY = '; [ "$(id -u)" != 0 ] || exec setpriv --bounding-set=-dac_override --inh-caps=-dac_override "$@"'


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _places()
    yield from _read_only()
    yield from _remote()


def _places() -> Iterator[Case]:
    for name in ("ingest", "run"):
        yield refused(
            f"{name}: the workspace is a file", both(command(name), disk(lambda i: i.workspace.write_text("x"))), "runs"
        )
        yield refused(
            f"{name}: a file stands in the workspace's path",
            both(command(name), lambda i: key("workspace", f"{i.folder}/config.yaml/runs")(i)),
            "config.yaml",
        )
        yield refused(
            f"{name}: the workspace cannot be written",
            both(command(name), key("workspace", "/proc/runs")),
            "/proc/runs",
        )
        yield refused(
            f"{name}: the workspace is on a read-only file system",
            both(command(name), key("workspace", "/sys/runs")),
            "/sys/runs",
        )
        yield refused(
            f"{name}: the workspace is a device", both(command(name), key("workspace", "/dev/null")), "/dev/null"
        )
        yield refused(
            f"{name}: the workspace is below a device",
            both(command(name), key("workspace", "/dev/null/runs")),
            "/dev/null",
        )
        yield refused(
            f"{name}: the workspace is a link to nothing",
            both(command(name), disk(lambda i: i.workspace.symlink_to(i.folder / "gone"))),
            "is a link to",
            "gone",
        )
        yield refused(
            f"{name}: the workspace is below a link to nothing",
            both(
                command(name),
                lambda i: key("workspace", f"{i.folder}/link/runs")(i),
                disk(lambda i: (i.folder / "link").symlink_to("gone")),
            ),
            "is a link to gone",
        )
        yield refused(f"{name}: the workspace holds a NUL", both(command(name), key("workspace", "a\0b")), "workspace")
        yield refused(
            f"{name}: the workspace's name is too long", both(command(name), key("workspace", "w" * 300)), "wwww"
        )
        yield refused(
            f"{name}: no files above 2 KiB", both(command(name)), "runs", alone=True, limit="-f 2", leaves=KEPT
        )
        yield refused(
            f"{name}: artifacts is a file",
            both(command(name), disk(lambda i: [i.workspace.mkdir(), (i.workspace / "artifacts").write_text("x")])),
            "artifacts",
            leaves=KEPT,
        )
        yield refused(
            f"{name}: work is a file",
            both(command(name), disk(lambda i: [i.workspace.mkdir(), (i.workspace / "work").write_text("x")])),
            "work",
            leaves=KEPT,
        )
    yield refused(
        "run: no files above 16 KiB",
        command("run"),
        "runs",
        alone=True,
        limit="-f 16",
        leaves=("runs/artifacts/", *KEPT),
    )
    yield refused(
        "run: runs is a file",
        both(command("run"), disk(lambda i: [i.workspace.mkdir(), (i.workspace / "runs").write_text("x")])),
        "runs",
        leaves=("runs/artifacts/", *KEPT),
    )
    yield refused("a full disk, as /dev/full", key("workspace", "/dev/full/x"), "/dev/full")
    for glob in ("*", "runs*", "run?", "runs[1]", "{a,b}", "**"):
        yield either(
            f"the workspace is {glob}",
            both(lambda i, g=glob: key("workspace", f"{i.folder}/{g}")(i), disk(_bystander)),
            "workspace|" + glob,
            check=_bystander_lives,
        )


def _read_only() -> Iterator[Case]:
    """Yield what reads a finished run on a disk that cannot be written, and what would write there."""
    where = ("--workspace", "{folder}/runs")
    for words in (("report", "odd", *where), ("models", "list", *where)):
        spoil = both(disk(_finish, _lock), line(*words))
        yield accepted(f"{words[0]} of a read-only workspace", spoil, alone=True, limit=READ_ONLY, check=anything)
    for name in ("run", "ingest", "train", "guards", "explain"):
        spoil = both(disk(_finish, _lock), command(name))
        yield accepted(f"{name}: done, in a read-only workspace", spoil, alone=True, limit=READ_ONLY, check=anything)
    spoil = both(disk(_finish, _leave_work, _lock), command("run"))
    yield accepted("run: done, a killed run's work left", spoil, alone=True, limit=READ_ONLY, check=_says_what_stays)
    for name, more in {"run": ("--set", "train.lr=0.5"), "publish": ()}.items():
        spoil = both(disk(_finish, _lock), command(name, *more))
        yield refused(f"{name}: more, in a read-only workspace", spoil, "runs", alone=True, limit=READ_ONLY)


def _finish(inputs: Inputs) -> None:
    shown = run_cli(["run", str(inputs.config_file)])
    assert shown.code == 0, shown.err


def _leave_work(inputs: Inputs) -> None:
    """Leave what a run that was killed behind its commit leaves."""
    (trained,) = (inputs.workspace / "artifacts/train").iterdir()
    folder = inputs.workspace / "work/train" / trained.name
    folder.mkdir(parents=True)
    (folder / "history.jsonl").write_text("{}\n")


def _lock(inputs: Inputs) -> None:
    """Take the right to write."""
    for folder, _, files in os.walk(inputs.workspace):
        for file in files:
            (Path(folder) / file).chmod(0o444)
        Path(folder).chmod(0o555)


def _says_what_stays(inputs: Inputs, shown: Shown) -> list[str]:
    return [] if "a killed run's work stays" in shown.err else [shown.err]


def _remote() -> Iterator[Case]:
    remote = {
        "an unknown scheme": "nowhere://bucket/runs",
        "a scheme without its library": "abfs://container/runs",
        "no bucket": "s3://",
        "a glob in a bucket": "s3://bucket/*",
        "a bucket that is a glob": "s3://buck*/runs",
        "no credentials": "s3://gnnflow-no-such-bucket/runs",
        "http": "http://127.0.0.1:9/runs",
        "an unknown host": "sftp://no-such-host.invalid/runs",
        "a zip": "zip://runs",
    }
    for name, place in remote.items():
        spoil = both(key("workspace", place), lambda i: i.environment.update(OFFLINE))
        yield refused(
            f"a workspace with {name}", spoil, place.split(":")[0], alone=name in {"no credentials", "an unknown host"}
        )
    for place in (
        "s3://gnnflow-no-such-bucket/nodes.parquet",
        "gs://bucket/nodes.parquet",
        "hdfs://host:1/nodes.parquet",
    ):
        spoil = both(key("graph.nodes", place), lambda i: i.environment.update(OFFLINE))
        yield refused(f"a table at {place.split(':')[0]} without credentials", spoil, place.split(":")[0], alone=True)
    yield either("a workspace in memory", key("workspace", "memory://robustness/runs"), "memory", check=anything)
    yield accepted(
        "a workspace with spaces and more",
        lambda i: key("workspace", f"{i.folder}/a b#c%20é")(i),
        check=anything,
    )
    yield accepted("a relative workspace", key("workspace", "runs"))


def _bystander(inputs: Inputs) -> None:
    """Another workspace beside, which no refusal may touch."""
    for name in ("runs1", "runs", "a", "b"):
        file = inputs.folder / name / "artifacts" / "ingest" / "other" / "manifest.json"
        file.parent.mkdir(parents=True)
        file.write_text("{}")


def _bystander_lives(inputs: Inputs, shown: Shown) -> list[str]:
    lost = [
        n
        for n in ("runs1", "runs", "a", "b")
        if not (inputs.folder / n / "artifacts/ingest/other/manifest.json").exists()
    ]
    return [f"deleted the workspaces {lost}"] if lost else []
