"""A web tier in front of a slow database, twice on the same random load: with GET, SET and DEL, and with leases.

    python3 tests/clients/web_tier.py PORT [SECONDS]

The database is a file of SQLite with a row a page; a load takes 30 ms more, as one that joins and sorts would. Clients
ask for pages by Zipf's law; writers change a row, and delete its key then. A page is stale if it shows an older version
than the one whose deletion had been answered before the page was asked for. Nothing but Python's own library is needed.
"""

import random
import socket
import sqlite3
import sys
import tempfile
import threading
import time

PAGES, CLIENTS, WRITERS = 200, 48, 2
LIFE_S, LOAD_S = 1, 0.030


class Cache:
    """A connection that speaks RESP2."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        words = [str(word).encode() for word in words]
        request = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(request))
        return self.read()

    def read(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        count = int(rest)
        if count < 0:
            return None
        if kind == b"*":
            return [self.read() for _ in range(count)]
        return self.file.read(count + 2)[:-2].decode()


class Database:
    """The table of pages, and how often it was asked."""

    def __init__(self, path):
        self.path = path
        self.local = threading.local()
        self.loads = 0
        self.counting = threading.Lock()
        with self.connection() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE pages (id INTEGER PRIMARY KEY, version INTEGER)")
            connection.executemany("INSERT INTO pages VALUES (?, 0)", [(page,) for page in range(PAGES)])

    def connection(self):
        if not hasattr(self.local, "connection"):
            self.local.connection = sqlite3.connect(self.path, timeout=30)
        return self.local.connection

    def load(self, page):
        with self.counting:
            self.loads += 1
        (version,) = self.connection().execute("SELECT version FROM pages WHERE id = ?", (page,)).fetchone()
        time.sleep(LOAD_S)
        return version

    def change(self, page):
        with self.connection() as connection:
            connection.execute("UPDATE pages SET version = version + 1 WHERE id = ?", (page,))
        (version,) = self.connection().execute("SELECT version FROM pages WHERE id = ?", (page,)).fetchone()
        return version


def plain(cache, database, page):
    key = f"page:{page}"
    value = cache.call("GET", key)
    if value is None:
        value = database.load(page)
        cache.call("SET", key, value, "EX", LIFE_S)
    return int(value)


def leased(cache, database, page):
    key = f"page:{page}"
    while True:
        value, state, token = cache.call("LGET", key, "LEASE", 5000, "WAIT", 10000)
        if token:
            value = database.load(page)
            cache.call("LFILL", key, token, value, "EX", LIFE_S)
        if value is not None:
            return int(value)


def run(name, serve, port, seconds):
    """One run; what it needed, and how many pages were stale."""
    Cache(port).call("FLUSHALL")
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        database = Database(file.name)
        # The version of each page whose deletion was answered.
        deleted = [0] * PAGES
        times, stale = [], []
        end = time.monotonic() + seconds
        weights = [1 / (rank + 1) for rank in range(PAGES)]

        def client(seed):
            draw, cache = random.Random(seed), Cache(port)
            while time.monotonic() < end:
                (page,) = draw.choices(range(PAGES), weights)
                least, began = deleted[page], time.monotonic()
                version = serve(cache, database, page)
                times.append(time.monotonic() - began)
                if version < least:
                    stale.append(page)

        def writer(seed):
            draw, cache = random.Random(seed), Cache(port)
            while time.monotonic() < end:
                page = draw.choices(range(PAGES), weights)[0] // WRITERS * WRITERS + seed % WRITERS
                version = database.change(page)
                cache.call("DEL", f"page:{page}")
                deleted[page] = version
                time.sleep(0.01)

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
        threads += [threading.Thread(target=writer, args=(seed,)) for seed in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    times.sort()
    share = lambda part: 1000 * times[int(part * (len(times) - 1))]
    per_thousand = 1000 * database.loads / len(times)
    print(f"| {name} | {len(times):,} | {database.loads:,} | {per_thousand:.1f} | {share(0.5):.1f} | {share(0.99):.1f} | {len(stale):,} |")
    return len(stale), per_thousand


def main():
    port, seconds = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 5
    print("| | pages | database loads | per thousand pages | p50, ms | p99, ms | stale pages |")
    print("|---|---|---|---|---|---|---|")
    _, usual = run("GET, SET, DEL", plain, port, seconds)
    stale, loads = run("LGET, LFILL, DEL", leased, port, seconds)
    assert stale == 0, f"{stale} stale pages in spite of leases"
    assert loads < usual, f"{loads} loads per thousand pages instead of {usual}"


main()
