"""The Python of docs/leases.md against a server: one load for many threads, no old value behind a deletion."""

import pathlib
import re
import sys
import threading

import redis

port = int(sys.argv[1])
text = pathlib.Path(__file__).parents[2].joinpath("docs", "leases.md").read_text()
(source,) = re.findall(r"```python\n(.*?)```", text, re.S)
names = {}
exec(compile(source, "docs/leases.md", "exec"), names)
page = names["page"]

cache = redis.Redis(port=port)
cache.flushall()
loads, seen = [], []
began = threading.Event()


def load(key):
    loads.append(key)
    began.wait(10)
    return b"loaded"


def client():
    seen.append(page(redis.Redis(port=port), "page:7", load))


threads = [threading.Thread(target=client) for _ in range(50)]
for thread in threads:
    thread.start()
while cache.info("leases")["leases_waiting"] < 49:
    pass
began.set()
for thread in threads:
    thread.join()
assert loads == ["page:7"], loads
assert seen == [b"loaded"] * 50, seen


def changed_meanwhile(key):
    cache.delete(key)
    return b"old"


cache.delete("page:7")
assert page(cache, "page:7", changed_meanwhile) == b"old"
assert cache.get("page:7") is None


def fails(key):
    raise KeyError(key)


try:
    page(cache, "page:7", fails)
    raise AssertionError("the error of a loader is its caller's")
except KeyError:
    pass
assert cache.info("leases")["leases_in_force"] == 0
print("docs/leases.md: its Python works")
