"""However Dask's client shows that its scheduler is gone, one error tells so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from distributed.client import ClosedClientError
from distributed.comm import CommClosedError

from gnnflow.train.ranks.scheduler import SchedulerLostError, needing_scheduler

THERE = SimpleNamespace(scheduler=SimpleNamespace())
GIVEN_UP = SimpleNamespace(scheduler=None)


@pytest.mark.parametrize(
    ("client", "raised"),
    [
        (THERE, CommClosedError("in <TCP>: Stream is closed")),
        (THERE, ConnectionRefusedError()),
        (GIVEN_UP, ClosedClientError("Client is closed.")),
        (GIVEN_UP, AttributeError("'NoneType' object has no attribute 'ncores'")),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_scheduler_that_is_gone_is_told_as_that(client, raised):
    with (
        pytest.raises(SchedulerLostError, match=rf"the Dask scheduler was lost \({type(raised).__name__}\)") as told,
        needing_scheduler(client),
    ):
        raise raised
    assert told.value.__cause__ is raised


def test_a_fault_of_the_code_is_no_lost_scheduler():
    with pytest.raises(AttributeError, match="shape"), needing_scheduler(THERE):
        raise AttributeError("'Tensor' object has no attribute 'shap'. Did you mean: 'shape'?")
