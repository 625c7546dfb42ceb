"""Tests of one shared cluster run in one process, and the run ends also where a test takes its process with it."""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class Groups(LoadGroupScheduling):
    """Three faults of pytest-xdist 3.8 mended, each of which lets a run wait forever or ends it before all tests ran.

    After a process has ended, the test that ended it is given to the next one, groups whose tests all ran are given out
    again, as nothing to do, and the process in its place gets one group, whose last test waits for another.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        """Put the tests that a process has not run back, but for the one that ended it, which is returned."""
        groups = self.assigned_work[node]
        left = [(group, name) for group in groups.values() for name, is_done in group.items() if not is_done]
        if left:
            group, name = left[0]
            group[name] = True
        for scope in [scope for scope, group in groups.items() if all(group.values())]:
            del groups[scope]
        super().remove_node(node)
        return left[0][1] if left else None

    def schedule(self) -> None:
        """Give each process two groups, or tell it that no more will come."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)
