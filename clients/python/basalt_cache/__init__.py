"""Leases, tags, locks with fences and rates of a basalt server, over redis-py; `basalt_cache.asyncio` for asyncio."""

from ._steps import BasaltError, LoadTimeout, LockLost, LockTimeout, Rate, UnsupportedServer
from ._threads import Cache, Lock

__all__ = ["BasaltError", "Cache", "LoadTimeout", "Lock", "LockLost", "LockTimeout", "Rate", "UnsupportedServer"]
