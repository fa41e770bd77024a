"""A recipe of docs/ by 50 threads or tasks over one connection: PORT FILE.

One load for a missing key, one holder of a lock at a time, and nobody is stuck. Nothing is judged by time.
"""
import asyncio, importlib.util, inspect, sys, threading
from concurrent.futures import ThreadPoolExecutor

import redis
import redis.asyncio

port, file = int(sys.argv[1]), sys.argv[2]
specification = importlib.util.spec_from_file_location("recipe", file)
recipe = importlib.util.module_from_spec(specification)
specification.loader.exec_module(recipe)
WORKERS, PATIENCE_S = 50, 100
plain = redis.Redis(port=port)
plain.config_resetstat()


def connections():
    """How many connections there are but for our own."""
    return len(plain.client_list()) - 1


def everyone_asked(command):
    return plain.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"] >= WORKERS


class Counts:
    def __init__(self):
        self.loads, self.seen, self.inside, self.fences = [], [], 0, []

    def enter(self, fence):
        self.inside += 1
        assert self.inside == 1, "two hold the lock"
        self.fences.append(fence)

    def leave(self):
        self.inside -= 1

    def check(self, is_lease):
        if is_lease:
            assert self.loads == ["page:7"], self.loads
            assert self.seen == [b"loaded"] * WORKERS, self.seen
            assert plain.info("leases")["leases_in_force"] == 0
        else:
            assert len(self.fences) == WORKERS and self.fences == sorted(set(self.fences)), self.fences
            assert plain.exists("lock") == 0


def by_threads(counts):
    # The most that redis-py can share: each command waits until the connection is free.
    pool = redis.BlockingConnectionPool(port=port, max_connections=1, timeout=PATIENCE_S)
    client = redis.Redis(connection_pool=pool)

    def load(key):
        counts.loads.append(key)
        while not everyone_asked("lget"):
            pass
        assert connections() == 1
        return b"loaded"

    def work(fence):
        counts.enter(fence)
        if len(counts.fences) == 1:
            while not everyone_asked("lock"):
                pass
        client.set("row", fence)
        counts.leave()

    def run():
        if hasattr(recipe, "page"):
            counts.seen.append(recipe.page(client, "page:7", load, PATIENCE_S))
        else:
            recipe.locked(client, "lock", work, PATIENCE_S)

    threads = [threading.Thread(target=run) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if hasattr(recipe, "page"):
        by_failure(lambda load: recipe.page(client, "page:8", load, PATIENCE_S))


def by_failure(page):
    """A row that changes while it is loaded is not stored; the error of a loader is its caller's, and ends the lease.

    So does a value that can not be stored, and a server that refuses to store one, which is the caller's all the same.
    """

    def changed_meanwhile(key):
        plain.delete(key)
        return b"old"

    def fails(key):
        raise KeyError(key)

    assert page(changed_meanwhile) == b"old" and plain.get("page:8") is None
    for load, expected in ((fails, KeyError), (lambda key: {"id": 7}, redis.DataError)):
        try:
            page(load)
            raise AssertionError("the error of a loader is its caller's")
        except expected:
            pass
    plain.config_set("maxmemory", "1")
    with ThreadPoolExecutor(WORKERS) as pool:
        refused = list(pool.map(page, [lambda key: b"loaded"] * WORKERS))
    plain.config_set("maxmemory", "0")
    assert refused == [b"loaded"] * WORKERS, refused


async def by_tasks(counts):
    client = redis.asyncio.Redis(port=port, single_connection_client=True)

    async def load(key):
        counts.loads.append(key)
        while not everyone_asked("lget"):
            await asyncio.sleep(0.001)
        assert connections() == 1
        return b"loaded"

    async def work(fence):
        counts.enter(fence)
        if len(counts.fences) == 1:
            while not everyone_asked("lock"):
                await asyncio.sleep(0.001)
        await client.set("row", fence)
        counts.leave()

    async def run():
        if hasattr(recipe, "page"):
            counts.seen.append(await recipe.page(client, "page:7", load, PATIENCE_S))
        else:
            await recipe.locked(client, "lock", work, PATIENCE_S)

    await asyncio.gather(*[run() for _ in range(WORKERS)])

    async def failing(load):
        async def loads(key):
            return load(key)

        return await recipe.page(client, "page:8", loads, PATIENCE_S)

    if hasattr(recipe, "page"):
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(by_failure, lambda load: asyncio.run_coroutine_threadsafe(failing(load), loop).result())
    await client.aclose()


counts = Counts()
is_async = inspect.iscoroutinefunction(getattr(recipe, "page", None) or recipe.locked)
if is_async:
    asyncio.run(by_tasks(counts))
else:
    by_threads(counts)
counts.check(hasattr(recipe, "page"))
