"""A local S3 server with a bucket."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def local_bucket() -> Iterator[str]:
    """Start a server, point S3's clients at it, and give the URI of an empty bucket."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
            patched.setenv("AWS_ACCESS_KEY_ID", "test")
            patched.setenv("AWS_SECRET_ACCESS_KEY", "test")
            patched.setenv("AWS_DEFAULT_REGION", "us-east-1")
            s3fs.S3FileSystem.clear_instance_cache()
            bucket = f"bucket-{uuid.uuid4().hex[:8]}"
            s3fs.S3FileSystem().mkdir(bucket)
            yield f"s3://{bucket}"
            s3fs.S3FileSystem.clear_instance_cache()
    finally:
        server.stop()
