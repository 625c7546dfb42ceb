"""A port for a server that a test starts in a process of its own, some seconds from now."""

from __future__ import annotations

import contextlib
import secrets
import socket

# Below those that the system gives to whoever asks for any (/proc/sys/net/ipv4/ip_local_port_range): the server takes
# its port only once it has started, and nobody else is to get it meanwhile.
_PORTS = range(20_000, 32_000)
_TRIES = 100


def free_port() -> int:
    """Return a port that nobody listens at. Raises OSError where none is found."""
    for port in secrets.SystemRandom().sample(_PORTS, _TRIES):  # other tests may draw from the same seed
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"none of {_TRIES} ports is free")
