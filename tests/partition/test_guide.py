"""What the guide to partitions shows is accepted as printed."""

from __future__ import annotations

import re

import pytest

from gnnflow.config import load_config
from tests.conftest import REPOSITORY

GUIDE = (REPOSITORY / "docs" / "partitioning.md").read_text()
GRAPH, *KINDS = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)[0].splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_accepted_beside_the_graph_shown(kind: str) -> None:
    assert load_config(f"name: small\n{GRAPH}\n{kind}", source="guide").graph.partitions == 8
