"""Seeded graphs made on the spot: a payments network to learn on, a power-law graph to measure with.

Nodes are drawn at once, edges in pieces of a million, each from its own seed, so that any size is written in the memory
of one piece. Read `payments.py` first.
"""

from __future__ import annotations

from gnnflow.synthetic.payments import CLASSES, payments, write_payments
from gnnflow.synthetic.pieces import SyntheticGraph
from gnnflow.synthetic.power_law import power_law, write_power_law

__all__ = ["CLASSES", "SyntheticGraph", "payments", "power_law", "write_payments", "write_power_law"]
