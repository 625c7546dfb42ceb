"""`python -m gnnflow.config` prints the reference of every configuration key."""

from __future__ import annotations

import sys

from gnnflow.config.reference import config_reference

sys.stdout.write(config_reference())
