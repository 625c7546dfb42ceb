"""Let this pod's Dask worker finish its tasks before the pod is stopped.

Kubernetes runs it before it sends SIGTERM. The scheduler then gives the worker nothing new, copies results that only it
holds to other workers, and the tasks it runs may end. Tasks commit their own output and Dask repeats those of a lost
worker, so running out of time costs work and no result.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from distributed import Client

_POLL_SECONDS = 1.0


def drain(client: Client, *, name: str, seconds: float) -> bool:
    """Return whether the worker of this name has nothing left to do; wait for that at most `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        addresses = [address for address, worker in workers.items() if str(worker["name"]) == name]
        if not addresses:
            return True
        # Retiring fails, and is tried again, while no other worker can take the results: one may be starting. Retired
        # and not removed: a removed worker would lose the task it runs.
        retired = client.retire_workers(addresses, close_workers=False, remove=False)
        if retired and not any(client.processing(addresses).values()):
            return True
        time.sleep(_POLL_SECONDS)
    return False


def main() -> int:
    """Drain the worker POD_NAME of the scheduler GNNFLOW_DASK_ADDRESS. Never fails: the pod stops in any case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    try:
        with Client(os.environ["GNNFLOW_DASK_ADDRESS"], timeout=10) as client:
            done = drain(client, name=os.environ["POD_NAME"], seconds=parser.parse_args().seconds)
    except (OSError, TimeoutError) as error:
        print(f"no scheduler to ask ({type(error).__name__})", file=sys.stderr)
        return 0
    print("drained" if done else "stopped with tasks running", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
