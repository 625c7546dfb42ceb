"""gnnflow trains and serves graph neural networks on graphs that do not fit in one machine's memory.

docs/architecture.md lists the five files to read first.
"""

from __future__ import annotations

__version__ = "0.1.0"
