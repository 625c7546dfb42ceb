"""Training on several ranks, which are tasks of a Dask cluster: how they begin together, and what they exchange.

Read `gang.py` first: the stage's own process starts the ranks, watches them and starts them again. `task.py` is what
runs on a worker. There `group.py` joins the ranks (`operations.py`: what they take part in together, and how it ends),
`source.py` deals them their shares, and an exchange makes their gradients one: `gradients.py` by all-reduce (small
messages by `doubling.py`), `servers.py` through parameter servers (what each holds in `server_shard.py`, rows of large
tables by `tables.py`). `rows.py` carries the rows of a joint strategy, `shared_memory.py` both between ranks of one
host. The loop (`gnnflow.train.fit`) runs on every rank and knows none of it.
"""

from __future__ import annotations
