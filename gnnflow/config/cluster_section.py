"""The `cluster` section: the processes that run the rounds. It changes no result, so no fingerprint covers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ByteSize, Discriminator, Field, Tag, field_validator, model_validator

from gnnflow.config.base import Integer, Number, Section, Size, Uri, problem

# A worker that has imported torch holds 400 MiB, and Dask gives no task to one that has 80 % of its limit: with less
# than this the first task waits for ever, or workers are killed one after another.
_LEAST_MEMORY = 512 << 20


class SynchronousCluster(Section):
    """Everything in this process, one task after another."""

    kind: Literal["synchronous"] = Field("synchronous", description="Run in this process, one task after another.")


class LocalCluster(Section):
    """Dask workers on this machine."""

    kind: Literal["local"] = Field(
        "local",
        description="Start Dask workers on this machine. Each needs ten open files of this process (ulimit -n) and 24 "
        "KiB of /dev/shm.",
    )
    workers: Integer = Field(2, ge=1, le=1024, description="Worker processes.")
    memory_limit: Size = Field(
        ByteSize(2 * 1024**3), description="Memory of one worker, such as 2GiB; 0 sets no limit."
    )

    @field_validator("memory_limit")
    @classmethod
    def _check_memory_limit(cls, limit: ByteSize) -> ByteSize:
        if 0 < limit < _LEAST_MEMORY:
            raise problem(
                f"is not allowed: must be at least {_LEAST_MEMORY >> 20}MiB, which a worker takes before it reads "
                "anything, or 0 for no limit",
                fix="Write it with its unit, such as 2GiB.",
            )
        return limit

    @model_validator(mode="before")
    @classmethod
    def _refuse_removed_keys(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and "threads" in raw:
            raise problem(
                "a worker runs one task at a time and a task computes with one thread, so the key had no effect",
                key="threads",
                fix="Delete it; cluster.workers says how many tasks run at once.",
            )
        return raw


class AddressCluster(Section):
    """A Dask cluster that is already running."""

    kind: Literal["address"] = Field("address", description="Join a Dask cluster that is already running.")
    address: Uri = Field(description="The scheduler's address, such as tcp://scheduler:8786.")
    resource: str | None = Field(
        None,
        min_length=1,
        description="Use only workers that offer this resource of Dask's (`dask worker --resources NAME=1`); null for "
        "all that can run gnnflow's tasks.",
    )
    workers: Integer = Field(
        1, ge=1, le=65536, description="Workers that must be able to run gnnflow's tasks before a stage begins."
    )
    start_seconds: Number = Field(
        30.0,
        ge=0,
        le=86400,
        description="Seconds to wait for so many while the cluster has others; then the run stops with a list of what "
        "those lack.",
    )


def _tag(value: Any) -> str | None:
    """Return the tag of the union's member that reads a value: by default `local`; None for no mapping."""
    return value.get("kind", "local") if isinstance(value, Mapping) else getattr(value, "kind", None)


ClusterConfig = Annotated[
    Annotated[SynchronousCluster, Tag("synchronous")]
    | Annotated[LocalCluster, Tag("local")]
    | Annotated[AddressCluster, Tag("address")],
    Field(discriminator=Discriminator(_tag)),
]
