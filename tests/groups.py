"""Tests of one shared cluster run in one process, and the run ends also where a test takes its process with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadGroupScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.workermanage import WorkerController


def name_group(item: pytest.Item) -> None:
    """Write the group of a test behind its name, by which the main process knows it.

    pytest-xdist 3.8 writes it to an attribute that pytest 9.2 no longer reads, so that each test was a group by itself.
    """
    groups = sorted(str(mark.args[0]) for mark in item.iter_markers("xdist_group"))
    if groups and "@" not in item.nodeid.rpartition("]")[2]:
        item._id = type(item.id).parse(f"{item.nodeid}@{'_'.join(groups)}")


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
