"""What a Dask cluster is asked, as tasks ask it."""

from __future__ import annotations

import asyncio
import contextlib

from gnnflow_airflow import submissions
from tests.mapreduce.foreign_cluster import foreign_cluster


def submission_of(config, stage="ingest"):
    return submissions.Submission.new(stage, config.model_dump(mode="json"))


def submit(cluster, submission, *, say, **options):
    async def ask():
        async with submissions.connect(cluster.address) as client:
            return await submissions.run(client, submission, say=say, **options)

    return asyncio.run(ask())


def running_on(cluster):
    """Return the names of what a cluster's workers have to do."""

    async def ask():
        async with submissions.connect(cluster.address) as client:
            return [key for keys in (await client.processing()).values() for key in keys]

    return asyncio.run(ask())


def kinds_on(cluster, topic):
    """Return the kinds of a topic's events."""

    async def ask():
        async with submissions.connect(cluster.address) as client:
            return [event["kind"] for _, event in await client.get_events(topic)]

    return asyncio.run(ask())


@contextlib.contextmanager
def one_worker(folder):
    """Yield a cluster whose only worker is there."""

    async def wait(address):
        async with submissions.connect(address) as client:
            await client.wait_for_workers(1, timeout=60)

    with foreign_cluster(folder) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("good")
        asyncio.run(wait(cluster.address))
        yield cluster
