"""The command line: reads a config, runs stages, shows progress, prints what a script or a person needs.

No logic of its own: every command is a few lines over `gnnflow.stages`. Read `commands.py` first.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit: 0; 2 for what a user can act on; 1 for our bug; 128 and the signal that stops."""
    from gnnflow.cli import stopping, streams

    streams.make_usable()
    as_json = "--json" in sys.argv
    with stopping.watched(as_json=as_json):
        from gnnflow.cli.boundary import run_guarded
        from gnnflow.cli.commands import build_app

        code = run_guarded(build_app, as_json=as_json)
    raise SystemExit(code)
