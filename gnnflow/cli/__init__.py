"""The command line: reads a config, runs stages, shows progress, prints what a script or a person needs.

Every command is a few lines over `gnnflow.stages`. Read `commands.py` first.
"""

from __future__ import annotations

import atexit
import gc
import sys


def main() -> None:
    """Run the command line and exit: 0, 2 (a user's error), 1 (our bug), or 128 plus a stopping signal."""
    from gnnflow.cli import stopping, streams

    streams.make_usable()
    # at its end Python would look for cycles among all objects of all libraries, which takes up to a second
    atexit.register(gc.freeze)
    as_json = "--json" in sys.argv
    with stopping.watched(as_json=as_json):
        from gnnflow.cli.boundary import run_guarded
        from gnnflow.cli.commands import build_app

        code = run_guarded(build_app, as_json=as_json)
    raise SystemExit(code)
