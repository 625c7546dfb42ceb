"""Progress that keeps what a run says."""

from __future__ import annotations

from gnnflow.progress import Silent


class Heard(Silent):
    """Keeps the messages of a run, in order."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        """Keep it."""
        self.messages.append(text)
