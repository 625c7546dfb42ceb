"""When a driver that nobody waits for any more stops, on a clock that is set here."""

from __future__ import annotations

import pytest

from gnnflow.remote import handover
from gnnflow.remote.handover import HANDED_OVER, TAKEN_OVER, Handover
from tests.clock import Clock

HANDED = {"kind": HANDED_OVER, "seconds": 15.0}
TAKEN = {"kind": TAKEN_OVER}


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that goes on by what is added to it."""
    made = Clock()
    monkeypatch.setattr(handover, "time", made)
    return made


def first_abandoned(clock, events_at, *, until=120):
    """Return the first second at which a driver is abandoned, whose topic holds events_at(second)."""
    begin = clock.now
    driver = Handover(lambda: events_at(clock.now - begin))
    for second in range(until):
        clock.now = begin + second
        if driver.check():
            return second
    return None


@pytest.mark.parametrize(
    ("events_at", "expected"),
    [
        (lambda _: [], None),  # its first watcher still waits
        (lambda second: [HANDED][: second >= 12], 28),  # by a look every two seconds
        (lambda second: [HANDED, TAKEN][: 1 + (second >= 10)], None),
        (lambda second: [HANDED, TAKEN, HANDED][: 2 + (second >= 50)], 66),  # by a second attempt
        (lambda _: [HANDED, {"kind": "of a later version"}], 18),
    ],
)
def test_a_driver_is_abandoned_where_nobody_takes_it_over_in_time(clock, events_at, expected):
    assert first_abandoned(clock, events_at) == expected


def test_a_scheduler_that_does_not_answer_abandons_nothing(clock):
    def fails(_):
        raise OSError

    assert first_abandoned(clock, fails) is None
