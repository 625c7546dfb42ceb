"""Partitions a graph: the kinds of partitioning, and the rounds that rewrite a store.

Read `planning.py` first: every kind returns a plan, and its figures say how good it is. Each kind is a module:
`ranges.py`, `ldg.py` (by `streaming.py`), `metis.py`, `louvain.py`, and `balance.py`, which moves nodes until costs are
even; `costs.py` learns the cost of a root from timed tasks. `run.py` carries out any plan by the rounds of `rounds.py`.
"""
