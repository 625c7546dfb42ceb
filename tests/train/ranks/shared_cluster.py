"""The size of the cluster that the tests of ranks share."""

WORKERS = 3
