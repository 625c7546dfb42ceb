"""Training on several ranks, which are tasks of a Dask cluster: how they begin together, and what they exchange.

Read `gang.py` first: the stage's own process has the ranks train (`attempt.py`: starts and watches them), and begins
again when one is lost. `task.py` is what runs on a worker. There `group.py` joins the ranks (`operations.py`: what they
take part in together, and how it ends), and `rank.py` is what the loop of training sees of one: `source.py` deals it
its shares, and an exchange makes the gradients one. `gradients.py` does so by all-reduce (small messages by
`doubling.py`), `pushing.py` through parameter servers (`servers.py`; what each holds in `server_shard.py`, rows of
large tables by `tables.py`, batches taken from others by `stealing.py`). `rows.py` carries the rows of a joint
strategy, `shared_memory.py` both between ranks of one host. The loop itself (`gnnflow.train.fit`) knows none of it.
"""

from __future__ import annotations
