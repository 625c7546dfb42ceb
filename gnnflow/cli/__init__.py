"""The command line: reads a config, runs stages, shows progress, prints what a script or a person needs.

No logic of its own: every command is a few lines over `gnnflow.stages`. Read `commands.py` first.
"""

from __future__ import annotations

import sys

from gnnflow.graph.errors import GnnflowError

_FAILED = 2
_INTERRUPTED = 130


def main() -> None:
    """Run the command line. Problems a user can act on are one message and exit code 2; anything else is our bug."""
    from gnnflow.cli.commands import build_app

    try:
        build_app()()
    except GnnflowError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(_FAILED) from None
    except KeyboardInterrupt:
        sys.stderr.write("stopped; run the same command again to resume\n")
        raise SystemExit(_INTERRUPTED) from None
