"""Tests mirror gnnflow/; contracts/ holds the suites that several implementations share."""
