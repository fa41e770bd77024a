"""Without a server: what the operations send, by answers that are written down here."""

import asyncio
import threading
import unittest

import redis

import basalt_cache.asyncio
from basalt_cache import Cache, LoadTimeout, LockLost, LockTimeout, UnsupportedServer


class Script:
    """A client that expects these commands, and answers so: pairs of words and an answer or an error."""

    def __init__(self, *dialogue, **options):
        self.dialogue = list(dialogue)
        self.get_encoder = redis.Redis(**options).get_encoder

    def execute_command(self, *words, **options):
        assert self.dialogue, f"one more: {words}"
        expected, answer = self.dialogue.pop(0)
        assert len(words) >= len(expected), words
        assert words[: len(expected)] == expected, f"{words}, not {expected}"
        if isinstance(answer, Exception):
            raise answer
        return answer


def load_nothing(key):
    raise AssertionError("nobody may load")


class Leases(unittest.TestCase):
    def check(self, dialogue, run, **options):
        client = Script(*dialogue, **options)
        run(Cache(client))
        self.assertEqual(client.dialogue, [])

    def test_a_fresh_value_is_answered_without_a_load(self):
        self.check(
            [(("LGET", "k", "LEASE", 5000), [b"v", b"hit", 0])],
            lambda cache: self.assertEqual(cache.get_or_load("k", load_nothing, ttl=1), b"v"),
        )

    def test_a_stale_value_without_a_token_is_answered(self):
        self.check(
            [(("LGET", "k"), [b"old", b"stale", 0])],
            lambda cache: self.assertEqual(cache.get_or_load("k", load_nothing, ttl=1), b"old"),
        )

    def test_a_token_has_the_caller_load_and_store(self):
        fill = ("LFILL", "k", 7, b"new", "PX", 1500, "STALE", 30000, "TAGS", 2, "a", "b")
        self.check(
            [(("LGET", "k"), [b"old", b"stale", 7]), (fill, 0)],
            lambda cache: self.assertEqual(
                cache.get_or_load("k", lambda key: "new", ttl=1.5, stale=30, tags=["a", "b"]), b"new"
            ),
        )

    def test_who_is_told_busy_asks_again(self):
        busy = (("LGET", "k"), [None, b"busy", 0])
        self.check(
            [busy, busy, (("LGET", "k"), [b"v", b"hit", 0])],
            lambda cache: self.assertEqual(cache.get_or_load("k", load_nothing, ttl=1), b"v"),
        )

    def test_the_time_to_wait_ends(self):
        def run(cache):
            with self.assertRaises(LoadTimeout):
                cache.get_or_load("k", load_nothing, ttl=1, wait=0)

        self.check([(("LGET", "k"), [None, b"busy", 0])], run)

    def test_a_loader_that_fails_gives_up_and_its_error_is_the_callers(self):
        def fails(key):
            raise KeyError(key)

        def run(cache):
            with self.assertRaises(KeyError):
                cache.get_or_load("k", fails, ttl=1)

        get = (("LGET", "k"), [None, b"miss", 7])
        self.check([get, (("LDROP", "k", 7), 1)], run)
        self.check([get, (("LDROP", "k", 7), ConnectionError())], run)

    def test_nothing_that_was_loaded_is_not_stored(self):
        self.check(
            [(("LGET", "k"), [None, b"miss", 7]), (("LDROP", "k", 7), 1)],
            lambda cache: self.assertIsNone(cache.get_or_load("k", lambda key: None, ttl=1)),
        )

    def test_a_value_that_the_server_does_not_store_is_the_callers_and_the_next_one_may_load(self):
        for refused in (redis.ResponseError("MISCONF"), redis.ConnectionError(), ConnectionError()):
            for dropped in (1, ConnectionError()):
                miss, fill = (("LGET", "k"), [None, b"miss", 7]), ("LFILL", "k", 7, b"v")
                refusal = [miss, (fill, refused), (("LDROP", "k", 7), dropped)]

                def run(cache):
                    for _ in range(4):
                        self.assertEqual(cache.get_or_load("k", lambda key: b"v", ttl=1), b"v")

                with self.assertLogs("basalt_cache") as log:
                    self.check([*refusal, *refusal, miss, (fill, 1), *refusal], run)
                # One line for as long as nothing is stored.
                self.assertEqual(len(log.output), 2, log.output)

    def test_a_value_that_can_not_be_stored_is_an_error_at_once_and_the_next_one_may_load(self):
        miss, drop = (("LGET", "k"), [None, b"miss", 7]), (("LDROP", "k", 7), 1)

        def run_with(value):
            def run(cache):
                with self.assertRaises((redis.DataError, UnicodeError)):
                    cache.get_or_load("k", lambda key: value, ttl=1)

            return run

        for value in ({"id": 7}, True, "\ud800"):
            self.check([miss, drop], run_with(value))
        self.check([miss, drop], run_with(b"\xff"), decode_responses=True)

    def test_a_tag_that_can_not_be_sent_is_an_error_and_the_next_one_may_load(self):
        def run(cache):
            with self.assertRaises(redis.DataError):
                cache.get_or_load("k", lambda key: "v", ttl=1, tags=[None])

        miss, drop = (("LGET", "k"), [None, b"miss", 7]), (("LDROP", "k", 7), 1)
        self.check([miss, (("LFILL", "k"), redis.DataError()), drop], run)

    def test_who_loads_gets_what_others_read(self):
        for value, stored, options in (
            ("v", b"v", {}),
            (7, b"7", {}),
            (memoryview(b"v"), b"v", {}),
            ("v", b"v", {"decode_responses": True}),
            (b"v", b"v", {"decode_responses": True}),
        ):
            read = stored.decode() if options else stored
            self.check(
                [(("LGET", "k"), [None, b"miss", 7]), (("LFILL", "k", 7, stored), 1)],
                lambda cache: self.assertEqual(cache.get_or_load("k", lambda key: value, ttl=1), read),
                **options,
            )

    def test_options_that_are_wrong_take_no_lease(self):
        def run(cache):
            with self.assertRaises(TypeError):
                cache.get_or_load("k", load_nothing, ttl=None)

        self.check([], run)

    def test_another_server_is_named(self):
        def run(cache):
            with self.assertRaises(UnsupportedServer):
                cache.get_or_load("k", load_nothing, ttl=1)

        self.check([(("LGET", "k"), Exception("unknown command 'LGET', with args beginning with: 'k'"))], run)

    def test_a_reply_for_each_primary_is_summed(self):
        self.check(
            [(("TAG", "INVALIDATE", "a"), {"one": 2, "other": 3})],
            lambda cache: self.assertEqual(cache.invalidate("a"), 5),
        )
        self.check([], lambda cache: self.assertEqual(cache.invalidate(), 0))

    def test_a_rate_is_read(self):
        def run(cache):
            rate = cache.throttle("k", burst=15, count=30, period=60)
            self.assertEqual((rate.limited, rate.remaining, rate.retry_after, rate.reset_after), (True, 0, 2, 32))
            self.assertIsNone(cache.throttle("k", burst=15, count=30, period=60).retry_after)

        words = ("CL.THROTTLE", "k", 15, 30, 60, 1)
        self.check([(words, [1, 16, 0, 2, 32]), (words, [0, 16, 15, -1, 2])], run)


class Locks(unittest.TestCase):
    def run_with(self, *dialogue):
        self.client = Script(*dialogue)
        return Cache(self.client)

    def tearDown(self):
        self.assertEqual(self.client.dialogue, [])

    def test_a_lock_is_taken_and_released(self):
        cache = self.run_with(
            (("LOCK", "l"), [9, 1]),
            (("SET", "row", "v", "FENCE", "l", 9), b"OK"),
            (("UNLOCK", "l"), 0),
        )
        with cache.lock("l", renew=False) as lock:
            self.assertEqual(lock.fence, 9)
            self.assertFalse(lock.lost)
            lock.set("row", "v")

    def test_a_lock_that_a_client_took_twice_is_released_twice(self):
        cache = self.run_with((("LOCK", "l"), [9, 2]), (("UNLOCK", "l"), 1), (("UNLOCK", "l"), 0))
        with cache.lock("l", renew=False):
            pass

    def test_others_have_it_for_all_the_time(self):
        cache = self.run_with((("LOCK", "l"), None))
        with self.assertRaises(LockTimeout):
            cache.lock("l", wait=0)

    def test_a_reply_that_never_came_leaves_no_lock_behind(self):
        cache = self.run_with((("LOCK", "l"), ConnectionError("gone")), (("UNLOCK", "l"), 0))
        with self.assertRaisesRegex(ConnectionError, "gone"):
            cache.lock("l")

    def test_a_lost_lock_is_told_at_the_end(self):
        cache = self.run_with((("LOCK", "l"), [9, 1]), (("UNLOCK", "l"), Exception("NOTOWNER The lock is not held")))
        with self.assertRaises(LockLost):
            with cache.lock("l", renew=False):
                pass

    def test_a_write_behind_the_end_raises_and_its_error_is_what_is_seen(self):
        cache = self.run_with(
            (("LOCK", "l"), [9, 1]),
            (("SET", "row", "v"), None),
            (("UNLOCK", "l"), Exception("NOTOWNER The lock is not held")),
        )
        with self.assertRaisesRegex(LockLost, "nothing was written"):
            with cache.lock("l", renew=False) as lock:
                lock.set("row", "v")

    def test_a_lock_that_has_run_out_is_lost_whatever_the_server_says(self):
        cache = self.run_with((("LOCK", "l"), [9, 1]), (("UNLOCK", "l"), 0))
        with cache.lock("l", ttl=0.001, renew=False) as lock:
            self.assertTrue(lock.lost)
            with self.assertRaises(LockLost):
                lock.check()


class Silent:
    """A client whose server answers LOCK and nothing after that, until `end` is set."""

    def __init__(self):
        self.answers = {"LOCK": [9, 1]}
        self.end = threading.Event()
        self.extending = threading.Event()

    def execute_command(self, *words):
        if words[0] in self.answers:
            return self.answers[words[0]]
        if words[0] == "LOCKEXTEND":
            self.extending.set()
        self.end.wait()
        raise redis.TimeoutError


class SilentServers(unittest.TestCase):
    """These end, or hang until somebody stops them."""

    def setUp(self):
        self.client = Silent()
        self.addCleanup(self.client.end.set)

    def test_a_block_is_left_while_a_renewal_and_the_release_wait_for_the_server(self):
        with self.assertRaises(LockLost):
            with Cache(self.client).lock("l", ttl=0.3):
                self.client.extending.wait()

    def test_the_error_of_a_block_comes_out(self):
        with self.assertRaises(KeyError):
            with Cache(self.client).lock("l", ttl=0.3, renew=False):
                raise KeyError

    def test_the_error_of_a_loader_comes_out(self):
        self.client.answers["LGET"] = [None, b"miss", 7]
        with self.assertRaises(ZeroDivisionError):
            Cache(self.client).get_or_load("k", lambda key: 1 / 0, ttl=1)


class Gate:
    """A client for asyncio: LOCK and LGET are answered at once, other commands once `open` is set."""

    def __init__(self):
        self.open = asyncio.Event()
        self.came, self.done = asyncio.Queue(), asyncio.Queue()

    async def execute_command(self, *words):
        if words[0] in ("LOCK", "LGET"):
            return [9, 1] if words[0] == "LOCK" else [None, b"miss", 7]
        await self.came.put(words[0])
        await self.open.wait()
        await self.done.put(words[0])
        return 0


class Cancellations(unittest.IsolatedAsyncioTestCase):
    async def test_who_is_cancelled_while_leaving_a_block_releases(self):
        # As soon as the block ends, and once UNLOCK is under way; also while a renewal is.
        for renew in (False, True):
            for is_sent in (False, True):
                client = Gate()
                ended = asyncio.Event()

                async def hold():
                    async with basalt_cache.asyncio.Cache(client).lock("l", ttl=30, renew=renew):
                        ended.set()

                task = asyncio.ensure_future(hold())
                await ended.wait()
                if is_sent:
                    self.assertEqual(await client.came.get(), "UNLOCK")
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                client.open.set()
                self.assertEqual(await client.done.get(), "UNLOCK")

    async def test_a_renewal_under_way_does_not_hold_up_the_release(self):
        client = Gate()
        async with basalt_cache.asyncio.Cache(client).lock("l", ttl=3) as lock:
            self.assertEqual(await client.came.get(), "LOCKEXTEND")
            release = asyncio.ensure_future(lock.release())
            self.assertEqual(await client.came.get(), "UNLOCK")
            client.open.set()
            self.assertTrue(await release)

    async def test_a_loader_that_is_cancelled_twice_gives_up(self):
        client = Gate()
        loading = asyncio.Event()

        async def load(key):
            loading.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(basalt_cache.asyncio.Cache(client).get_or_load("k", load, ttl=1))
        await loading.wait()
        task.cancel()
        self.assertEqual(await client.came.get(), "LDROP")
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        client.open.set()
        self.assertEqual(await client.done.get(), "LDROP")

    async def test_a_server_that_is_silent_does_not_keep_a_block(self):
        with self.assertRaises(LockLost):
            async with basalt_cache.asyncio.Cache(Gate()).lock("l", ttl=0.3):
                pass


if __name__ == "__main__":
    unittest.main()
