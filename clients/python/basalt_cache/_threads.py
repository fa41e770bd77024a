"""The operations for programs with threads, on `redis.Redis` or `redis.RedisCluster`."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any, Callable, Optional, Sequence

from . import _steps
from ._steps import Aside, Call, Encode, LockLost, LockState, Rate, Sleep, Steps


class Lock(LockState):
    """A lock that is held. Leaving its `with` block releases it."""

    def __init__(self, cache: "Cache", name, ttl: float, max_hold: float):
        super().__init__(name, ttl, max_hold)
        self._cache = cache
        self._ended = threading.Event()

    def set(self, key, value, *, ttl: Optional[float] = None) -> None:
        """Writes a key while the lock is held, in one step on the server; else raises `LockLost`."""
        self._cache._run(self.set_steps(key, value, ttl))

    def release(self) -> bool:
        """Whether the lock was ours up to now. Returns when the lock has ended at the latest, or a second later."""
        # A renewal under way is not waited for: it may be late, and extends nothing that is released.
        self._ended.set()
        return self._cache._run(self.release_steps())

    def _renew(self) -> None:
        threading.Thread(target=self._run_renewal, name=f"renews {self.name}", daemon=True).start()

    def _run_renewal(self) -> None:
        def pause(seconds: float) -> None:
            if self._ended.wait(seconds):
                raise _Ended

        try:
            self._cache._run(self.renewal_steps(), pause)
        except _Ended:
            pass

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            if not self.release():
                raise LockLost(f"the lock {self.name!r} was lost before its block ended")
            return
        # The error of the block is the one that its caller has to see.
        try:
            self.release()
        except Exception:
            pass


class _Ended(Exception):
    """The lock is about to be released."""


class Cache:
    """Commands of basalt on a client of redis-py. One client serves all threads: nothing here blocks its connections."""

    def __init__(self, client):
        self.client = client
        self._storing = _steps.Storing()

    def get_or_load(
        self,
        key,
        load: Callable[[Any], Any],
        *,
        ttl: float,
        stale: float = 0,
        lease: float = 5,
        wait: float = 10,
        tags: Sequence[Any] = (),
    ):
        """The value of a key. Where it is missing, `load(key)` is called by one client at a time, and stored for `ttl`.

        `lease` is the longest that a load may take; `wait` is the longest that others wait for it (`LoadTimeout`).
        For `stale` seconds behind `ttl` one client loads anew, and all others are answered the old value. A loader
        that answers None stores nothing.

        All callers get what the client reads: bytes, or text with `decode_responses`. What redis-py can not store
        (a dict) raises its DataError. What the server will not store is answered all the same; the first time the
        log `basalt_cache` says so.
        """
        return self._run(_steps.get_or_load(self._storing, key, load, ttl, stale, lease, wait, tags))

    def set(self, key, value, *, ttl: Optional[float] = None, stale: float = 0, tags: Sequence[Any] = ()) -> None:
        """Stores a value with tags and a stale window."""
        self._run(_steps.store(key, value, ttl, stale, tags))

    def tag(self, key, *tags) -> int:
        """Gives a key of any type further tags; how many it did not have."""
        return self._run(_steps.add_tags(key, tags))

    def invalidate(self, *tags) -> int:
        """Deletes all keys that have any of the tags, on all primaries of a cluster; how many."""
        return self._run(_steps.invalidate(tags))

    def throttle(self, key, *, burst: int, count: int, period: int, quantity: int = 1) -> Rate:
        """Counts a request: `count` in `period` seconds may come, and `burst` more at once."""
        return self._run(_steps.throttle(key, burst, count, period, quantity))

    def lock(self, name, *, ttl: float = 30, wait: float = 10, renew: bool = True, max_hold: float = 600) -> Lock:
        """Takes a lock; raises `LockTimeout` where others hold it for all of `wait`.

        While it is held, a thread extends it three times within `ttl`, for `max_hold` seconds at most. `renew=False`
        leaves it to end after `ttl`.
        """
        lock = Lock(self, name, ttl, max_hold)
        self._run(lock.acquire_steps(wait))
        if renew:
            lock._renew()
        return lock

    def _run(self, steps: Steps, pause: Callable[[float], None] = time.sleep):
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._carry_out(step, pause)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value

    def _carry_out(self, step, pause):
        if isinstance(step, Call):
            return self.client.execute_command(*step.words, **target(self.client, step))
        if isinstance(step, Sleep):
            return pause(step.seconds)
        if isinstance(step, Encode):
            return encoded(self.client, step)
        if isinstance(step, Aside):
            return self._run_aside(step)
        return step.load(step.key)

    def _run_aside(self, aside: Aside):
        # redis-py tries again for minutes where a server is silent, and can not be told to stop.
        answer: Future = Future()

        def run() -> None:
            try:
                answer.set_result(self._run(aside.steps))
            except BaseException as error:
                answer.set_exception(error)

        thread = threading.Thread(target=run, name="basalt_cache tidies up", daemon=True)
        thread.start()
        thread.join(aside.seconds)
        return answer.result() if answer.done() else None


def encoded(client, step: Encode):
    """The bytes that the client stores for a value, and what it reads of them."""
    encoder = client.get_encoder()
    stored = bytes(encoder.encode(step.value))
    return stored, encoder.decode(stored)


def target(client, step: Call) -> dict:
    """The argument that sends a command without a key to all primaries, where the client is one of a cluster."""
    if not step.on_all_primaries or not hasattr(client, "get_primaries"):
        return {}
    # The nodes themselves: redis-py 8 takes the flag PRIMARIES for commands that it knows, and no others.
    return {"target_nodes": client.get_primaries()}
