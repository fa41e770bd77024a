"""The operations for asyncio, on `redis.asyncio.Redis` or `redis.asyncio.RedisCluster`."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Awaitable, Callable, Coroutine, Generator, Optional, Sequence, Set, Union

from . import _steps
from ._steps import Aside, Call, Encode, LockLost, LockState, Rate, Sleep, Steps
from ._threads import encoded, target

_running: Set[asyncio.Task] = set()
"""Tasks that nobody waits for; asyncio itself would let them be collected while they run."""


def _start(work: Coroutine) -> asyncio.Task:
    def end(task: asyncio.Task) -> None:
        _running.discard(task)
        # Errors that nobody asks for are not to be reported.
        task.cancelled() or task.exception()

    task = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(end)
    return task


class Lock(LockState):
    """A lock that is held. Leaving its `async with` block releases it."""

    def __init__(self, cache: "Cache", name, ttl: float, max_hold: float):
        super().__init__(name, ttl, max_hold)
        self._cache = cache
        self._ended = asyncio.Event()

    async def set(self, key, value, *, ttl: Optional[float] = None) -> None:
        """Writes a key while the lock is held, in one step on the server; else raises `LockLost`."""
        await self._cache._run(self.set_steps(key, value, ttl))

    async def release(self) -> bool:
        """Whether the lock was ours up to now; as `basalt_cache.Lock.release`, and released though cancelled."""
        self._ended.set()
        return await self._cache._run(self.release_steps())

    def _renew(self) -> None:
        _start(self._run_renewal())

    async def _run_renewal(self) -> None:
        # A request under way is not cancelled: redis-py would close the connection, which others may share.
        async def pause(seconds: float) -> None:
            ended = asyncio.ensure_future(self._ended.wait())
            done, _ = await asyncio.wait([ended], timeout=seconds)
            ended.cancel()
            if done:
                raise _Ended

        try:
            await self._cache._run(self.renewal_steps(), pause)
        except _Ended:
            pass

    async def __aenter__(self) -> "Lock":
        return self

    async def __aexit__(self, kind, error, trace) -> None:
        if error is None:
            if not await self.release():
                raise LockLost(f"the lock {self.name!r} was lost before its block ended")
            return
        # The error of the block is the one that its caller has to see.
        try:
            await self.release()
        except Exception:
            pass


class _Ended(Exception):
    """The lock is about to be released."""


class _Locking:
    """A lock that is about to be taken: `async with cache.lock(…)`, or `await cache.lock(…)`."""

    def __init__(self, take: Callable[[], Awaitable[Lock]]):
        self._take = take
        self._lock: Optional[Lock] = None

    def __await__(self) -> Generator[Any, None, Lock]:
        return self._take().__await__()

    async def __aenter__(self) -> Lock:
        self._lock = await self._take()
        return self._lock

    async def __aexit__(self, kind, error, trace) -> None:
        assert self._lock is not None
        await self._lock.__aexit__(kind, error, trace)


class Cache:
    """Commands of basalt on an asyncio client of redis-py. One client serves all tasks, even with one connection."""

    def __init__(self, client):
        self.client = client
        self._storing = _steps.Storing()

    async def get_or_load(
        self,
        key,
        load: Callable[[Any], Union[Any, Awaitable[Any]]],
        *,
        ttl: float,
        stale: float = 0,
        lease: float = 5,
        wait: float = 10,
        tags: Sequence[Any] = (),
    ):
        """As `basalt_cache.Cache.get_or_load`; `load` may be a coroutine function."""
        return await self._run(_steps.get_or_load(self._storing, key, load, ttl, stale, lease, wait, tags))

    async def set(self, key, value, *, ttl: Optional[float] = None, stale: float = 0, tags: Sequence[Any] = ()) -> None:
        """Stores a value with tags and a stale window."""
        await self._run(_steps.store(key, value, ttl, stale, tags))

    async def tag(self, key, *tags) -> int:
        """Gives a key of any type further tags; how many it did not have."""
        return await self._run(_steps.add_tags(key, tags))

    async def invalidate(self, *tags) -> int:
        """Deletes all keys that have any of the tags, on all primaries of a cluster; how many."""
        return await self._run(_steps.invalidate(tags))

    async def throttle(self, key, *, burst: int, count: int, period: int, quantity: int = 1) -> Rate:
        """Counts a request: `count` in `period` seconds may come, and `burst` more at once."""
        return await self._run(_steps.throttle(key, burst, count, period, quantity))

    def lock(self, name, *, ttl: float = 30, wait: float = 10, renew: bool = True, max_hold: float = 600) -> _Locking:
        """As `basalt_cache.Cache.lock`, with a task in place of the thread."""

        async def take() -> Lock:
            lock = Lock(self, name, ttl, max_hold)
            await self._run(lock.acquire_steps(wait))
            if renew:
                lock._renew()
            return lock

        return _Locking(take)

    async def _run(self, steps: Steps, pause: Callable[[float], Awaitable[None]] = asyncio.sleep):
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._carry_out(step, pause)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value

    async def _carry_out(self, step, pause):
        if isinstance(step, Call):
            return await self.client.execute_command(*step.words, **target(self.client, step))
        if isinstance(step, Sleep):
            return await pause(step.seconds)
        if isinstance(step, Encode):
            return encoded(self.client, step)
        if isinstance(step, Aside):
            task = _start(self._run(step.steps))
            # It is no part of this task, so that a cancellation of this one does not reach it.
            done, _ = await asyncio.wait([task], timeout=step.seconds)
            return task.result() if done else None
        loaded = step.load(step.key)
        return await loaded if inspect.isawaitable(loaded) else loaded
