"""Who owns which node: what roots cost, and how a graph's partitions are balanced by it.

Read `balance.py` first: it moves nodes between partitions until their costs are even. `costs.py` learns what a root
costs from tasks that were timed.
"""
