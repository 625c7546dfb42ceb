"""Where edges are computed together."""

from __future__ import annotations

import numpy as np
import pytest

from gnnflow.graph.book import edge_partitions, grid_shape


@pytest.mark.parametrize(("partitions", "grid"), [(1, (1, 1)), (4, (2, 2)), (6, (2, 3)), (7, (1, 7)), (64, (8, 8))])
def test_grids_are_as_square_as_the_number_of_partitions(partitions: int, grid: tuple[int, int]) -> None:
    assert grid_shape(partitions) == grid


@pytest.mark.parametrize("partitions", [4, 6, 7, 12])
def test_on_the_grid_a_node_is_known_to_its_row_and_column_alone(partitions: int) -> None:
    target, source = (each.ravel() for each in np.indices((partitions, partitions)))
    at = edge_partitions("grid", target=target, source=source, partitions=partitions)
    rows, columns = grid_shape(partitions)
    for owner in range(partitions):
        known = set(at[(target == owner) | (source == owner)].tolist())
        assert len(known) <= rows + columns - 1
        assert owner in known
    # every partition computes as many of the pairs of partitions
    assert set(np.bincount(at, minlength=partitions)) == {partitions}


def test_by_target_and_source_edges_are_where_these_live() -> None:
    target, source = np.array([0, 1, 2]), np.array([2, 2, 1])
    assert edge_partitions("", target=target, source=source, partitions=4).tolist() == [0, 1, 2]
    assert edge_partitions("source", target=target, source=source, partitions=4).tolist() == [2, 2, 1]
