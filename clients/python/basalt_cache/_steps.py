"""The protocol of every operation, written once for threads and for asyncio.

An operation is a generator. It yields steps (`Call`, `Sleep`, `Load`, `Encode`, `Aside`), and is sent their answers.
`Cache` in `_threads` and in `asyncio` carry the steps out, and differ in nothing else. No step waits inside the server:
a command that waits blocks its connection, and the command that would end the wait may stand behind it on the same
connection. What tidies up (LDROP, UNLOCK) is an `Aside`: a silent server does not keep its caller, and a cancelled
caller does not keep it.
"""

from __future__ import annotations

import logging
import math
import random
import time
import uuid
from typing import Any, Callable, Generator, NamedTuple, Optional, Sequence

from redis.exceptions import DataError, RedisClusterException, RedisError

_log = logging.getLogger("basalt_cache")

GRACE_S = 1.0
"""How long a command that only tidies up is waited for at least."""

LONGEST_PAUSE_S = 0.05
"""The longest pause between two requests of somebody who waits."""


class BasaltError(Exception):
    """Any error of this package. Errors of redis-py come through as they are."""


class LoadTimeout(BasaltError, TimeoutError):
    """Another client was loading the key for all of `wait`."""


class LockTimeout(BasaltError, TimeoutError):
    """Others held the lock for all of `wait`."""


class LockLost(BasaltError):
    """The lock is not held any more: its time was over, or somebody deleted it."""


class UnsupportedServer(BasaltError):
    """The server does not know the command: it is no basalt, or an older one."""


class Rate(NamedTuple):
    """The answer of `throttle`."""

    limited: bool
    """The request is one too many."""
    limit: int
    """Requests that may come at once."""
    remaining: int
    """Requests that may still come now."""
    retry_after: Optional[int]
    """Seconds until the next request may come; None if one may come now."""
    reset_after: int
    """Seconds until `limit` requests may come at once again."""


class Call(NamedTuple):
    """A command; the answer is the reply."""

    words: tuple
    on_all_primaries: bool = False


class Sleep(NamedTuple):
    """A pause."""

    seconds: float


class Load(NamedTuple):
    """The caller's loader; the answer is the value."""

    load: Callable[[Any], Any]
    key: Any


class Encode(NamedTuple):
    """A value that is to be stored; the answer is its bytes, and what a read of these would answer."""

    value: Any


Steps = Generator[Any, Any, Any]


class Aside(NamedTuple):
    """Steps that go on whatever becomes of the caller; the answer is theirs, or None where they take longer."""

    steps: Steps
    seconds: float


def milliseconds(seconds: float) -> int:
    """At least one: the server refuses 0."""
    return max(1, math.ceil(seconds * 1000))


class Patience:
    """Growing pauses, until the time to wait is over."""

    def __init__(self, wait: float):
        self.until = time.monotonic() + wait
        self.pause = 0.002

    def next(self) -> Optional[Sleep]:
        """The next pause; None once the time is over."""
        left = self.until - time.monotonic()
        if left <= 0:
            return None
        # Each client draws its own pause, so that clients that began together do not come back together.
        pause = self.pause * random.uniform(0.5, 1)
        self.pause = min(self.pause * 1.6, LONGEST_PAUSE_S)
        return Sleep(min(pause, left))


def _call(*words: Any, on_all_primaries: bool = False) -> Steps:
    try:
        return (yield Call(words, on_all_primaries))
    except Exception as error:
        if "unknown command" in str(error):
            raise UnsupportedServer(f"this server has no {words[0]}: is it basalt?") from error
        raise


def _marks(stale: float, tags: Sequence[Any]) -> list:
    words: list = []
    if stale:
        words += ["STALE", milliseconds(stale)]
    if tags:
        words += ["TAGS", len(tags), *tags]
    return words


class Storing:
    """Whether the server stores what is loaded: the first of many times that it does not is a line in the log."""

    is_on = True

    def refused(self, key, error) -> None:
        if self.is_on:
            _log.warning("%r was loaded but not stored: %s", key, error)
        self.is_on = False


def get_or_load(storing, key, load, ttl, stale, lease, wait, tags) -> Steps:
    # Before a lease is taken, as what is wrong here is the caller's error.
    how = ["PX", milliseconds(ttl), *_marks(stale, tags)]
    patience = Patience(wait)
    while True:
        value, _, token = yield from _call("LGET", key, "LEASE", milliseconds(lease))
        if token:
            break
        if value is not None:
            return value
        pause = patience.next()
        if pause is None:
            raise LoadTimeout(f"another client was loading {key!r} for {wait} s")
        yield pause
    is_over = False
    try:
        loaded = yield Load(load, key)
        if loaded is None:
            return None
        stored, read = yield Encode(loaded)
        try:
            # An answer of 0 means that the key changed meanwhile: this caller still has what it asked for.
            yield Call(("LFILL", key, token, stored, *how))
            is_over = storing.is_on = True
        except DataError:
            raise
        except (RedisError, RedisClusterException, OSError) as error:
            # Memory or disk are full, say. This caller has its value all the same, and so will those who wait.
            storing.refused(key, error)
        return read
    finally:
        # Whatever happened, the next one may load at once, and not when the lease is over.
        if not is_over:
            yield from _give_up(key, token)


def _give_up(key, token) -> Steps:
    """The lease ends by its time anyway, so that an error here must not hide the loader's."""
    try:
        yield Aside(_call("LDROP", key, token), GRACE_S)
    except Exception:
        pass


def store(key, value, ttl, stale, tags) -> Steps:
    expiry = [] if ttl is None else ["PX", milliseconds(ttl)]
    yield from _call("SET", key, value, *expiry, *_marks(stale, tags))


def invalidate(tags) -> Steps:
    if not tags:
        return 0
    answer = yield from _call("TAG", "INVALIDATE", *tags, on_all_primaries=True)
    return sum(answer.values()) if isinstance(answer, dict) else answer


def add_tags(key, tags) -> Steps:
    return (yield from _call("TAG", "ADD", key, *tags))


def throttle(key, burst, count, period, quantity) -> Steps:
    answer = yield from _call("CL.THROTTLE", key, burst, count, period, quantity)
    limited, limit, remaining, retry_after, reset_after = answer
    return Rate(bool(limited), limit, remaining, None if retry_after < 0 else retry_after, reset_after)


def _is_foreign(error: Exception) -> bool:
    return str(error).startswith("NOTOWNER")


class LockState:
    """A lock that is held by this object alone; a new owner for each attempt, so that a release never ends another's."""

    def __init__(self, name, ttl: float, max_hold: float):
        self.name = name
        self.owner = uuid.uuid4().hex
        self.fence = 0
        """Larger with each owner; `set` shows it to the server."""
        self.ttl = ttl
        self.max_hold = max_hold
        self._valid_until = 0.0
        self._is_gone = False

    @property
    def lost(self) -> bool:
        """Whether the lock may be another's by now, as far as this side can know."""
        return self._is_gone or time.monotonic() >= self._valid_until

    def check(self) -> None:
        """Raises `LockLost` if the lock may be another's by now."""
        if self.lost:
            raise LockLost(f"the lock {self.name!r} ran out")

    def _counts_from(self, sent: float) -> None:
        # The server counts from when the command came. The margin is for clocks that run at different speeds.
        self._valid_until = sent + self.ttl * 0.99 - 0.001

    def acquire_steps(self, wait: float) -> Steps:
        patience = Patience(wait)
        try:
            while True:
                sent = time.monotonic()
                answer = yield from _call("LOCK", self.name, self.owner, milliseconds(self.ttl))
                if answer is not None:
                    self.fence = answer[0]
                    self._counts_from(sent)
                    return self
                pause = patience.next()
                if pause is None:
                    raise LockTimeout(f"others held the lock {self.name!r} for {wait} s")
                yield pause
        except (LockTimeout, UnsupportedServer):
            raise
        except BaseException:
            # The command may have been executed though its reply never came.
            try:
                yield from self.release_steps()
            except Exception:
                pass
            raise

    def renewal_steps(self) -> Steps:
        """Extends the lock three times within its ttl, until `max_hold` is over or it is lost."""
        until = time.monotonic() + self.max_hold
        while time.monotonic() < until and not self.lost:
            yield Sleep(self.ttl / 3)
            sent = time.monotonic()
            try:
                yield from _call("LOCKEXTEND", self.name, self.owner, milliseconds(self.ttl))
            except Exception as error:
                # Without a connection it tries again until the lock has run out.
                self._is_gone = self._is_gone or _is_foreign(error)
            else:
                self._counts_from(sent)

    def release_steps(self) -> Steps:
        """Whether the lock was ours up to now, as far as is known before it ends."""
        self._is_gone = True
        left = self._valid_until - time.monotonic()
        return bool((yield Aside(self._unlock_steps(), max(left, GRACE_S))))

    def _unlock_steps(self) -> Steps:
        try:
            # A client that sends LOCK twice because a connection broke holds the lock twice.
            while (yield from _call("UNLOCK", self.name, self.owner)) > 0:
                pass
            return True
        except Exception as error:
            if _is_foreign(error):
                return False
            raise

    def set_steps(self, key, value, ttl) -> Steps:
        expiry = [] if ttl is None else ["PX", milliseconds(ttl)]
        answer = yield from _call("SET", key, value, *expiry, "FENCE", self.name, self.fence)
        if answer is None or answer is False:
            self._is_gone = True
            raise LockLost(f"the lock {self.name!r} ran out: nothing was written")
