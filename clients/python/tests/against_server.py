"""Against a server, by 50 threads or tasks that share one client: PORT PORT-OF-AN-EMULATED-CLUSTER.

Loads and holders are counted, so that a load too many or two holders at once fail; nothing is judged by time.
"""

import asyncio
import logging
import sys
import threading
import time

import redis
import redis.asyncio

import basalt_cache
import basalt_cache.asyncio

PORT, CLUSTER_PORT = int(sys.argv[1]), int(sys.argv[2])
WORKERS = 50


def by_threads(client):
    """Everything, with one client in all threads."""
    cache = basalt_cache.Cache(client)
    plain = redis.Redis(port=PORT)
    plain.flushall()

    def in_threads(work):
        errors = []

        def run():
            try:
                work()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors

    loads, seen = [], []

    def load(key):
        loads.append(key)
        # Until others were told to wait.
        while int(plain.info("commandstats")["cmdstat_lget"]["calls"]) < WORKERS:
            pass
        return b"page"

    plain.config_resetstat()
    in_threads(lambda: seen.append(cache.get_or_load("page:7", load, ttl=60, stale=30, tags=["shop:3"])))
    assert loads == ["page:7"] and seen == [b"page"] * WORKERS, (loads, seen)
    assert cache.invalidate("shop:3") == 1 and plain.get("page:7") is None

    inside, most, fences = [], [], []

    def bill():
        with cache.lock("order:7", wait=100) as lock:
            inside.append(lock)
            most.append(len(inside))
            lock.set("order:7:state", str(lock.fence))
            fences.append(lock.fence)
            inside.remove(lock)

    in_threads(bill)
    assert most == [1] * WORKERS, most
    assert fences == sorted(fences) and len(set(fences)) == WORKERS
    assert plain.get("order:7:state") == str(fences[-1]).encode()
    assert plain.exists("order:7") == 0

    with cache.lock("long", ttl=3) as lock:
        extended, before = 0, 0
        while extended < 2:
            left = plain.pttl("long")
            extended += left > before + 500 and before > 0
            before = left
            time.sleep(0.02)
        assert not lock.lost

    lost = cache.lock("short", ttl=0.2, renew=False)
    with cache.lock("short", wait=100) as other:
        assert other.fence > lost.fence
        try:
            lost.set("row", "old")
            raise AssertionError("written without the lock")
        except basalt_cache.LockLost:
            pass
        assert lost.lost and not lost.release()
        other.set("row", "new", ttl=50)
    assert plain.get("row") == b"new" and plain.ttl("row") > 0

    cache.set("user:1", "ann", ttl=60, stale=10, tags=["users"])
    plain.hset("user:2", "name", "bob")
    assert cache.tag("user:2", "users", "people") == 2
    assert cache.invalidate("users", "nobody") == 2
    rates = [cache.throttle("login", burst=2, count=1, period=60) for _ in range(4)]
    assert [rate.limited for rate in rates] == [False, False, False, True], rates
    assert rates[3].retry_after >= 1 and rates[0].retry_after is None


async def by_tasks(client):
    """Everything, with one client in all tasks."""
    cache = basalt_cache.asyncio.Cache(client)
    plain = redis.Redis(port=PORT)
    plain.flushall()
    loads = []

    async def load(key):
        loads.append(key)
        # Until others were told to wait.
        while int(plain.info("commandstats")["cmdstat_lget"]["calls"]) < WORKERS:
            await asyncio.sleep(0.001)
        return b"page"

    plain.config_resetstat()
    get = lambda: cache.get_or_load("page:7", load, ttl=60, tags=["shop:3"])
    seen = await asyncio.gather(*[get() for _ in range(WORKERS)])
    assert loads == ["page:7"] and seen == [b"page"] * WORKERS, (loads, seen)
    assert await cache.invalidate("shop:3") == 1

    inside, most, fences = [], [], []

    async def bill():
        async with cache.lock("order:7", wait=100) as lock:
            inside.append(lock)
            most.append(len(inside))
            await lock.set("order:7:state", str(lock.fence))
            fences.append(lock.fence)
            inside.remove(lock)

    await asyncio.gather(*[bill() for _ in range(WORKERS)])
    assert most == [1] * WORKERS, most
    assert fences == sorted(fences) and len(set(fences)) == WORKERS
    assert plain.exists("order:7") == 0

    async with cache.lock("long", ttl=3) as lock:
        extended, before = 0, 0
        while extended < 2:
            left = plain.pttl("long")
            extended += left > before + 500 and before > 0
            before = left
            await asyncio.sleep(0.02)
        assert not lock.lost

    lost = await cache.lock("short", ttl=0.2, renew=False)
    async with cache.lock("short", wait=100):
        try:
            await lost.set("row", "old")
            raise AssertionError("written without the lock")
        except basalt_cache.LockLost:
            pass
        assert not await lost.release()

    # A task that is cancelled while it loads gives the lease up, and one that is cancelled with a lock releases it.
    loading = asyncio.Event()

    async def hangs(key):
        loading.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(cache.get_or_load("slow", hangs, ttl=60))
    await loading.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() and plain.info("leases")["leases_in_force"] == 0

    async def holds():
        async with cache.lock("held"):
            await hangs("held")

    loading.clear()
    task = asyncio.ensure_future(holds())
    await loading.wait()
    task.cancel()
    await asyncio.wait([task])
    assert plain.exists("held") == 0

    # So does one that is cancelled while it leaves the block.
    async def leaves():
        async with cache.lock("left", ttl=3600):
            asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)

    task = asyncio.ensure_future(leaves())
    await asyncio.wait([task])
    assert task.cancelled()
    while plain.exists("left"):
        await asyncio.sleep(0.001)

    # And while writes are refused, all get what they load.
    plain.config_set("maxmemory", "1")
    logging.disable(logging.WARNING)
    try:
        get = lambda: cache.get_or_load("page:9", lambda key: "page", ttl=60, lease=3600, wait=100)
        assert await asyncio.gather(*[get() for _ in range(WORKERS)]) == [b"page"] * WORKERS
    finally:
        plain.config_set("maxmemory", "0")
        logging.disable(logging.NOTSET)

    await cache.set("user:1", "ann", tags=["users"])
    assert await cache.tag("user:1", "people") == 1 and await cache.invalidate("people") == 1
    assert not (await cache.throttle("login", burst=2, count=1, period=60)).limited
    await client.aclose()


def refused_by_the_server(client):
    """While writes are refused all get what they load, and nobody waits for a lease."""
    cache = basalt_cache.Cache(client)
    plain = redis.Redis(port=PORT)
    plain.flushall()
    loads, seen = [], []

    def load(key):
        loads.append(key)
        return "page"

    def ask():
        # A lease that is kept would keep the others for an hour.
        seen.append(cache.get_or_load("page:9", load, ttl=60, lease=3600, wait=100))

    plain.config_set("maxmemory", "1")
    logging.disable(logging.WARNING)
    try:
        threads = [threading.Thread(target=ask) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        plain.config_set("maxmemory", "0")
        logging.disable(logging.NOTSET)
    assert seen == [b"page"] * WORKERS and len(loads) == WORKERS, (seen, loads)
    for value in ({"id": 7}, True):
        try:
            cache.get_or_load("page:9", lambda key: value, ttl=60, lease=3600)
            raise AssertionError("stored as what?")
        except redis.DataError:
            pass
    assert plain.info("leases")["leases_in_force"] == 0
    assert cache.get_or_load("page:9", load, ttl=60) == cache.get_or_load("page:9", load, ttl=60) == b"page"


def errors_come_through():
    """Errors of redis-py are the caller's as they are."""
    plain = redis.Redis(port=PORT)
    plain.execute_command("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+@all", "-lget")
    try:
        basalt_cache.Cache(redis.Redis(port=PORT, username="reader", password="x")).get_or_load("k", str, ttl=1)
        raise AssertionError("the user may not")
    except redis.exceptions.NoPermissionError:
        pass


def in_a_cluster():
    cluster = redis.RedisCluster(host="127.0.0.1", port=CLUSTER_PORT)
    cache = basalt_cache.Cache(cluster)
    assert cache.get_or_load("{a}", lambda key: b"1", ttl=60, tags=["both"]) == b"1"
    assert cache.get_or_load("{b}", lambda key: b"2", ttl=60, tags=["both"]) == b"2"
    assert cache.invalidate("both") == 2
    with cache.lock("{a}lock") as lock:
        lock.set("{a}row", "1")
    assert not cache.throttle("rate", burst=1, count=1, period=1).limited


async def in_a_cluster_of_tasks():
    cluster = redis.asyncio.RedisCluster(host="127.0.0.1", port=CLUSTER_PORT)
    cache = basalt_cache.asyncio.Cache(cluster)
    assert await cache.get_or_load("{a}", lambda key: b"1", ttl=60, tags=["both"]) == b"1"
    assert await cache.invalidate("both") == 1
    await cluster.aclose()


one_connection = redis.BlockingConnectionPool(port=PORT, max_connections=1, timeout=60)
for protocol in (2, 3):
    by_threads(redis.Redis(port=PORT, protocol=protocol))
by_threads(redis.Redis(connection_pool=one_connection))
asyncio.run(by_tasks(redis.asyncio.Redis(port=PORT)))
asyncio.run(by_tasks(redis.asyncio.Redis(port=PORT, single_connection_client=True)))
refused_by_the_server(redis.Redis(port=PORT))
errors_come_through()
in_a_cluster()
asyncio.run(in_a_cluster_of_tasks())
print(f"basalt-cache for Python, with redis-py {redis.__version__}: {WORKERS} at once, one load, one holder")
