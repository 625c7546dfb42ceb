"""Who owns which node: the kinds of partitioning, and the rounds that write a store anew.

Read `planning.py` first: what a kind gives, a plan. Each kind is a module: `ranges.py`, `ldg.py` (by `streaming.py`),
`metis.py`, `louvain.py`, and `balance.py`, which moves nodes until costs are even; `costs.py` learns what a root costs
from tasks that were timed. `run.py` carries any plan out, by the rounds of `rounds.py`, and `figures.py` says how good
it is.
"""
