"""`python -m gnnflow` is the same as `gnnflow`."""

from __future__ import annotations

from gnnflow.cli import main

if __name__ == "__main__":
    main()
