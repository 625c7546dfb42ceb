"""Global-batch training under `train.memory`: the graph in files, a few intervals of it in memory."""

from __future__ import annotations

from gnnflow.train.streamed.source import StreamedSource, open_streamed

__all__ = ["StreamedSource", "open_streamed"]
