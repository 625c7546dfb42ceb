"""A damaged workspace is found, by name and with what to do, or gives the same bytes: none silent, no traceback."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.robustness.damage import Template, finished, outcome, random_damage

pytestmark = pytest.mark.draws  # a damage may show in a picture alone

CHUNKS = 20
IN_ALL = int(os.environ.get("GNNFLOW_DAMAGES", "200"))  # a search takes 1000 or more


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return finished(tmp_path_factory.mktemp("damages"))


def damaged(template: Template, seed: int, count: int, record: Callable[[str, object], None]) -> None:
    """Do damages one after another, say how they ended, and fail where one was silent or not readable."""
    pick = random.Random(seed)
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    for _ in range(count):
        damage = random_damage(template, pick)
        end, seen = outcome(template, damage, pick)
        ends[end] += 1
        if end in {"silent", "traceback", "unclear"}:
            wrong.append(f"{end}: {damage}: {seen}")
    record("damages", dict(ends))
    if wrong:
        pytest.fail("\n".join([f"{len(wrong)} of {count}", *wrong]), pytrace=False)


@pytest.mark.robustness
def test_a_few_damages_are_found_or_harmless(
    template: Template, record_property: Callable[[str, object], None]
) -> None:
    damaged(template, CHUNKS, 12, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CHUNKS))
def test_many_damages_are_found_or_harmless(
    template: Template, seed: int, record_property: Callable[[str, object], None]
) -> None:
    damaged(template, seed, IN_ALL // CHUNKS, record_property)
