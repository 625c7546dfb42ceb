"""Every odd input is refused readably, or accepted and what it says arrives. One test per row of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.robustness import (
    command_cases,
    config_cases,
    file_cases,
    folder_cases,
    id_cases,
    import_cases,
    label_cases,
    neighbor_cases,
    partition_cases,
    place_cases,
    registry_cases,
    size_cases,
    strategy_cases,
    text_cases,
    typed_cases,
    value_cases,
    workspace_cases,
)
from tests.robustness.case import Case, verdict

SOURCES = (
    id_cases,
    value_cases,
    label_cases,
    neighbor_cases,
    partition_cases,
    strategy_cases,
    size_cases,
    file_cases,
    folder_cases,
    config_cases,
    text_cases,
    typed_cases,
    place_cases,
    workspace_cases,
    command_cases,
    import_cases,
    registry_cases,
)
CASES: dict[str, tuple[str, Case]] = {}
for _source in SOURCES:
    _family = _source.__name__.rsplit(".", 1)[-1].removesuffix("_cases")
    for _case in _source.cases():
        assert _case.name not in CASES, f"two cases are called {_case.name}"
        CASES[_case.name] = (_family, _case)

pytestmark = pytest.mark.robustness


def test_the_table_is_large() -> None:
    kinds = Counter(case.must for _, case in CASES.values())
    assert kinds["refused"] >= 150
    assert kinds["accepted"] >= 100


@pytest.mark.parametrize("name", [pytest.param(name, marks=case.marks) for name, (_, case) in CASES.items()])
def test_odd_input_is_refused_readably_or_arrives_as_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    family, case = CASES[name]
    record_property("family", family)
    record_property("must", case.must)
    monkeypatch.chdir(tmp_path)
    if wrong := verdict(case, tmp_path):
        pytest.fail("; ".join(wrong), pytrace=False)
