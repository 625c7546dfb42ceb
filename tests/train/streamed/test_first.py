"""Source terms of the first layer that are made whenever they go by are those that would lie in a file."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from gnnflow.executions import streamed_first
from gnnflow.executions.streamed_first import FirstTerms
from tests.train.globalbatch.stored import job_for, write
from tests.train.streamed.cutting import trained_counted

MADE = {
    "gcn": {"kind": "gcn", "hidden": 8, "dropout": 0.5},
    "gcn without dropout": {"kind": "gcn", "hidden": 8, "dropout": 0.0},
    "sage, of which targets have features too": {"kind": "sage", "hidden": 8, "dropout": 0.3},
    "gin, which adds its input": {"kind": "gin", "hidden": 8, "dropout": 0.5, "residual": True},
}
FILED = {
    "an encoder learns": {"kind": "gcn", "hidden": 8, "encoder": "linear"},
    "a map in the terms learns": {"kind": "gat", "hidden": 8, "heads": 2},
    "the same before a maximum": {"kind": "sage", "aggregator": "max", "hidden": 8},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    write(folder)
    return folder


def trained(folder, model):
    """Return weights and losses of a run, the bytes it wrote, and whether terms were made in its passes."""
    made = []
    asked = FirstTerms.are_made.func

    def are_made(self):
        made.append(asked(self))
        return made[-1]

    with mock.patch.object(FirstTerms.are_made, "func", are_made):
        return *trained_counted(job_for(folder, memory="1GiB", epochs=3, model=model)), set(made)


@pytest.mark.parametrize("model", MADE.values(), ids=MADE)
def test_made_terms_give_the_same_bits_with_less_written(folder, model):
    *found, written, made = trained(folder, model)
    with mock.patch.object(streamed_first, "are_features", return_value=False):
        *filed, more, none = trained(folder, model)
    assert (made, none) == ({True}, {False})
    assert found == filed
    assert written < more


@pytest.mark.parametrize("model", FILED.values(), ids=FILED)
def test_terms_with_a_parameter_lie_in_files(folder, model):
    *_, made = trained(folder, model)
    assert made == {False}
