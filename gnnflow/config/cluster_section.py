"""The `cluster` section: the processes that run the rounds. It changes no result, so no fingerprint covers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ByteSize, Discriminator, Field, Tag, field_validator, model_validator

from gnnflow.config.base import OWN_SPELLING, Integer, Number, Section, Size, Uri, problem, tag_of

OWN_KIND = "package.module:Cluster"

# A worker that has imported torch holds 400 MiB, and Dask gives no task to one that has 80 % of its limit: with less
# than this the first task waits for ever, or workers are killed one after another.
_LEAST_MEMORY = 512 << 20


class SynchronousCluster(Section):
    """Everything in this process, one task after another."""

    is_elsewhere: ClassVar[bool] = False
    kind: Literal["synchronous"] = Field("synchronous", description="Run in this process, one task after another.")


class LocalCluster(Section):
    """Dask workers on this machine."""

    is_elsewhere: ClassVar[bool] = False
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


class OtherWorkers(Section):
    """Workers that may run on other machines and lack what tasks need; fit ones are looked for."""

    is_elsewhere: ClassVar[bool] = True
    resource: str | None = Field(
        None,
        min_length=1,
        description="Use only workers that offer this resource of Dask's (`dask worker --resources NAME=1`); null for "
        "all that can run gnnflow's tasks.",
    )


class AddressCluster(OtherWorkers):
    """A Dask cluster that is already running."""

    kind: Literal["address"] = Field("address", description="Join a Dask cluster that is already running.")
    address: Uri = Field(description="The scheduler's address, such as tcp://scheduler:8786.")
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


class OwnCluster(OtherWorkers):
    """A Dask cluster that a class starts, such as Dask's own for Kubernetes, SLURM or a cloud."""

    kind: str = Field(
        pattern=f"^{OWN_SPELLING.pattern}$",
        examples=[OWN_KIND],
        description="Start a Dask cluster by its class, such as dask_jobqueue:SLURMCluster or dask_kubernetes.operator:"
        "KubeCluster, for the time of the command: docs/clusters.md.",
    )
    options: dict[str, Any] = Field({}, description="Keyword arguments for the class.")
    workers: Integer = Field(2, ge=1, le=65536, description="Workers to start (the class's method scale).")
    start_seconds: Number = Field(
        600.0,
        ge=0,
        le=86400,
        description="Seconds to wait for the cluster, and then for so many workers; and as long again for those that "
        "lack something while others can run gnnflow's tasks.",
    )


def _tag(value: Any) -> str | None:
    """Return the tag of the union's member that reads a value: by default `local`; None for no mapping."""
    kind = value.get("kind", "local") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return None if kind is None and not isinstance(value, Mapping) else tag_of(kind, own=OWN_KIND)


ClusterConfig = Annotated[
    Annotated[SynchronousCluster, Tag("synchronous")]
    | Annotated[LocalCluster, Tag("local")]
    | Annotated[AddressCluster, Tag("address")]
    | Annotated[OwnCluster, Tag(OWN_KIND)],
    Field(discriminator=Discriminator(_tag)),
]
