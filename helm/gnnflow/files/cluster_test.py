"""One task goes from a client through the scheduler to a worker, whose bytes the client reads from the workspace."""

from __future__ import annotations

import os
import sys
import uuid

import fsspec
from distributed import Client

_SECONDS = 240


def write(path: str, content: bytes) -> str:
    """Write the content; return the name of the worker that did."""
    from distributed import get_worker

    filesystem, inner = fsspec.core.url_to_fs(path)
    filesystem.makedirs(inner.rsplit("/", 1)[0], exist_ok=True)
    filesystem.pipe_file(inner, content)
    return str(get_worker().name)


def main() -> int:
    """Return 0 where what the worker wrote is what the client reads."""
    content = uuid.uuid4().bytes
    path = f"{os.environ['GNNFLOW_WORKSPACE']}/.cluster-test/{content.hex()}"
    with Client(os.environ["GNNFLOW_DASK_ADDRESS"], timeout=60) as client:
        client.wait_for_workers(1, timeout=_SECONDS)
        worker = client.submit(write, path, content, pure=False).result(timeout=_SECONDS)
    filesystem, inner = fsspec.core.url_to_fs(path)
    found = filesystem.cat_file(inner)
    filesystem.rm_file(inner)
    print(f"{worker} wrote {path}: {'the same bytes' if found == content else 'other bytes'}")
    return int(found != content)


if __name__ == "__main__":
    sys.exit(main())
