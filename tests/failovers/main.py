"""Failovers under writers: does the new primary have every write that was answered?

One primary with two replicas, watched by three Sentinels of Redis, or a shard with two replicas in a cluster of three
shards. In each round the primary is killed (kill -9) or stopped (SIGSTOP, continued once it is replaced) while writers
write; when another server leads and two replicas follow it, each answered write of the round is looked up there. The old
primary comes back as a replica.

    python3 tests/failovers/main.py target/release/basalt --by sentinel --rounds 200 --sync 1
    python3 tests/failovers/main.py redis-server --by cluster --rounds 20

Exits with 1 if `--sync` was given and a write was lost, or a fence went back.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ERRORS = (OSError, EOFError)


class Refused(Exception):
    """An error reply."""


class Connection:
    """A connection that sends one command at a time."""

    def __init__(self, port, timeout=2.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            body = self.file.read(int(rest) + 2)
            if len(body) < int(rest) + 2:
                raise EOFError
            return body[:-2].decode()
        if kind == b"*":
            # An error within a transaction's reply is that command's.
            return None if rest == b"-1" else [self.item() for _ in range(int(rest))]
        return rest.decode()

    def item(self):
        try:
            return self.read()
        except Refused as refused:
            return refused

    def call(self, *words):
        self.send(*words)
        return self.read()

    def close(self):
        self.socket.close()


def ask(port, *words):
    """The reply to one command, or None where there is none."""
    try:
        connection = Connection(port)
        try:
            return connection.call(*words)
        finally:
            connection.close()
    except (*ERRORS, Refused):
        return None


def info(port, field):
    text = ask(port, "INFO", "replication") or ""
    return next((line.split(":", 1)[1] for line in text.split("\r\n") if line.startswith(field + ":")), None)


def until(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited in vain until {what}")
        time.sleep(0.02)


class Fleet:
    """The servers, started and stopped by port."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = tempfile.mkdtemp(prefix="failovers-")
        self.processes = {}
        # Set while what was written is looked up.
        self.rests = threading.Event()
        self.is_basalt = "basalt" in os.path.basename(arguments.server)
        self.ports = [arguments.port + at for at in range(3 if arguments.by == "sentinel" else 5)]
        # The servers that replace each other.
        self.members = self.ports[:3]
        self.sentinels = [arguments.port + 50 + at for at in range(3)]

    def start(self, port, *more):
        folder = os.path.join(self.folder, str(port))
        os.makedirs(folder, exist_ok=True)
        words = [self.arguments.server, "--port", str(port), "--dir", folder, "--save", "", "--appendonly", "no"]
        words += ["--repl-diskless-sync-delay", "0", "--repl-backlog-size", "10mb", "--bind", "127.0.0.1"]
        if self.is_basalt:
            words += ["--metrics-port", "0", "--threads", "2"]
            words += ["--min-sync-replicas", str(self.arguments.sync), "--sync-replicas-timeout", "2000"]
        if self.arguments.by == "cluster":
            words += ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500"]
            words += ["--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no"]
        with open(os.path.join(folder, "log"), "ab") as log:
            self.processes[port] = subprocess.Popen(words + list(more), stdout=log, stderr=log)
        until(f"{port} answers", lambda: ask(port, "PING") == "PONG")

    def end(self, keeps):
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        if keeps:
            print(f"the logs are in {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


class BySentinel(Fleet):
    def assemble(self):
        first, *others = self.ports
        self.start(first)
        for port in others:
            self.start(port, "--replicaof", "127.0.0.1", str(first))
        until("two replicas follow", lambda: self.followers(first) == 2)
        for port in self.sentinels:
            path = os.path.join(self.folder, f"sentinel-{port}.conf")
            with open(path, "w", encoding="ascii") as file:
                file.write(
                    f"port {port}\nbind 127.0.0.1\nsentinel monitor group 127.0.0.1 {first} 2\n"
                    "sentinel down-after-milliseconds group 1500\nsentinel failover-timeout group 5000\n"
                    "sentinel parallel-syncs group 2\n"
                )
            log = open(os.path.join(self.folder, f"sentinel-{port}.log"), "wb")
            words = ["redis-sentinel", path]
            self.processes[port] = subprocess.Popen(words, stdout=log, stderr=log)
        until("the Sentinels know each other", lambda: self.is_whole(first))

    def watch(self, leader, port):
        """Whether a Sentinel takes this server for the leader of a healthy group."""
        text = ask(port, "INFO", "sentinel") or ""
        return f"status=ok,address=127.0.0.1:{leader},slaves=2,sentinels=3" in text

    def followers(self, port):
        fields = [info(port, f"slave{at}") or "" for at in range(4)]
        return sum("state=online" in field for field in fields)

    def leader(self):
        for port in self.sentinels:
            found = ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "group")
            if found:
                return int(found[1])
        return self.ports[0]

    def demote(self, port):
        # Sentinel does it after ten seconds.
        ask(port, "REPLICAOF", "127.0.0.1", self.leader())

    def bring_back(self, port):
        self.start(port, "--replicaof", "127.0.0.1", str(self.leader()))

    def is_whole(self, leader):
        agree = all(self.watch(leader, port) for port in self.sentinels)
        return agree and info(leader, "role") == "master" and self.followers(leader) == 2


class ByCluster(Fleet):
    def assemble(self):
        for port in self.ports:
            self.start(port)
        first, *others = self.ports
        for port in others:
            ask(first, "CLUSTER", "MEET", "127.0.0.1", port)
        until("all know all", lambda: all(self.known(port) == 5 for port in self.ports))
        ranges = {self.ports[0]: (0, 5460), self.ports[3]: (5461, 10922), self.ports[4]: (10923, 16383)}
        for port, (low, high) in ranges.items():
            ask(port, "CLUSTER", "ADDSLOTSRANGE", low, high)
        name = ask(first, "CLUSTER", "MYID")
        for port in self.ports[1:3]:
            until(f"{port} follows", lambda: ask(port, "CLUSTER", "REPLICATE", name) == "OK")
        until("the shard is whole", lambda: self.is_whole(first))

    def known(self, port):
        return len((ask(port, "CLUSTER", "NODES") or "").splitlines())

    def leader(self):
        for port in self.ports[3:]:
            for line in (ask(port, "CLUSTER", "NODES") or "").splitlines():
                words = line.split()
                if len(words) > 8 and words[8].startswith("0-") and "fail" not in words[2]:
                    return int(words[1].split("@")[0].rsplit(":", 1)[1])
        return self.ports[0]

    def followers(self, port):
        fields = [info(port, f"slave{at}") or "" for at in range(4)]
        return sum("state=online" in field for field in fields)

    def demote(self, port):
        """The cluster tells the node."""

    def bring_back(self, port):
        self.start(port)

    def is_whole(self, leader):
        def agrees(port):
            text = ask(port, "CLUSTER", "NODES") or ""
            return "fail" not in text and text.count("connected") == 5 and "handshake" not in text

        state = ask(leader, "CLUSTER", "INFO") or ""
        return "cluster_state:ok" in state and self.followers(leader) == 2 and all(map(agrees, self.ports))


class Writer(threading.Thread):
    """Writes one thing after the other, each once, and remembers which were answered."""

    def __init__(self, fleet, number):
        super().__init__(daemon=True)
        self.fleet, self.number = fleet, number
        self.lock = threading.Lock()
        self.answered, self.errors, self.texts = [], {}, set()
        self.prefix = "{b}"  # Slot 3300, of the first shard in a cluster.
        self.next = 0
        self.fence = (0, 0)
        self.fences_back = 0
        self.ends = False
        self.first_after = None
        self.round = 0

    def run(self):
        connection = None
        while not self.ends:
            try:
                if connection is None:
                    connection = Connection(self.fleet.leader(), timeout=1.0)
                if self.fleet.rests.is_set():
                    time.sleep(0.02)
                    continue
                self.write(connection)
                # Some thousand writes a second in all, so that what is looked up stays little.
                time.sleep(0.001)
            except Refused as refused:
                word = str(refused).split(" ")[0]
                self.errors[word] = self.errors.get(word, 0) + 1
                self.texts.add(str(refused)[:80])
                if word in ("READONLY", "MOVED", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED"):
                    connection.close()
                    connection = None
                time.sleep(0.01)
            except ERRORS:
                self.errors["connection"] = self.errors.get("connection", 0) + 1
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(0.01)

    def write(self, connection):
        with self.lock:
            self.next += 1
            n, kind, number = self.next, self.next % 9, self.round
        key = f"{self.prefix}:{number}:{self.number}"
        if kind == 0:
            connection.call("SET", f"{key}:s:{n}", n)
        elif kind == 1:
            connection.call("HSET", f"{key}:h", n, n)
        elif kind == 2:
            connection.call("RPUSH", f"{key}:l", n)
        elif kind == 3:
            connection.call("SADD", f"{key}:m", n)
        elif kind == 4:
            connection.call("ZADD", f"{key}:z", n, n)
        elif kind == 5:
            connection.call("XADD", f"{key}:x", f"{n}-1", "n", n)
        elif kind == 6:
            script = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"
            connection.call("EVAL", script, 1, f"{key}:e:{n}", n)
        elif kind == 7:
            connection.call("MULTI")
            try:
                connection.call("SET", f"{key}:t:{n}", n)
                connection.call("SETBIT", f"{key}:b", n, 1)
            finally:
                replies = connection.call("EXEC")
            if not isinstance(replies, list) or any(isinstance(reply, Refused) for reply in replies):
                raise Refused("EXECABORT")
        else:
            # A fence that grows with each lock; a counter stands for it where there are no locks.
            if self.fleet.is_basalt:
                lock = f"{self.prefix}:lock:{self.number}"
                fence, _ = connection.call("LOCK", lock, f"owner{n}", "1000", "WAIT", "100") or (None, None)
                if fence is None:
                    return
                connection.call("UNLOCK", lock, f"owner{n}")
            else:
                fence = connection.call("INCR", f"{key}:fence")
            fence = int(fence)
            # A counter begins anew with each round, a fence never does.
            before, at = self.fence
            if fence <= before and (self.fleet.is_basalt or at == number):
                self.fences_back += 1
            self.fence = (fence, number)
        with self.lock:
            self.answered.append((number, kind, n))
            if self.first_after is None:
                self.first_after = time.monotonic()

    def take(self, number):
        """Begins a round; the answered writes of the one before."""
        with self.lock:
            self.round = number
            answered, self.answered = self.answered, []
            return answered


def lost(connection, writer, answered, current):
    """The answered writes of the current round that the server does not have."""
    key = f"{writer.prefix}:{current}:{writer.number}"
    there = {
        1: set(connection.call("HKEYS", f"{key}:h")),
        2: set(connection.call("LRANGE", f"{key}:l", 0, -1)),
        3: set(connection.call("SMEMBERS", f"{key}:m")),
        4: set(connection.call("ZRANGE", f"{key}:z", 0, -1)),
        5: {entry[1][1] for entry in connection.call("XRANGE", f"{key}:x", "-", "+")},
    }
    letters = {0: "s", 6: "e", 7: "t"}
    missing = []
    for number, kind, n in answered:
        if number != current:
            continue
        if kind in letters:
            found = connection.call("GET", f"{key}:{letters[kind]}:{n}") == str(n)
            found = found and (kind != 7 or connection.call("GETBIT", f"{key}:b", n) == 1)
        else:
            found = kind not in there or str(n) in there[kind]
        if not found:
            missing.append((number, kind, n))
    return missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("--by", choices=["sentinel", "cluster"], default="sentinel")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--writers", type=int, default=6)
    parser.add_argument("--sync", type=int, default=0, help="min-sync-replicas of basalt")
    parser.add_argument("--port", type=int, default=17300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="a line for each round")
    arguments = parser.parse_args()
    if "/" in arguments.server:
        arguments.server = os.path.abspath(arguments.server)
    chance = random.Random(arguments.seed)
    fleet = (BySentinel if arguments.by == "sentinel" else ByCluster)(arguments)
    totals = {"answered": 0, "lost": 0, "rounds with a loss": 0}
    pauses, faults = [], {"kill": 0, "stop": 0}
    try:
        fleet.assemble()
        writers = [Writer(fleet, number) for number in range(arguments.writers)]
        for writer in writers:
            writer.start()
        for number in range(1, arguments.rounds + 1):
            leader = fleet.leader()
            for writer in writers:
                writer.take(number)
            time.sleep(chance.uniform(0.2, 0.6))
            fault = chance.choice(list(faults))
            faults[fault] += 1
            process = fleet.processes[leader]
            process.send_signal(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
            began = time.monotonic()
            # Replies that were on their way have arrived.
            time.sleep(0.05)
            for writer in writers:
                writer.first_after = None
            until("another server leads", lambda: fleet.leader() != leader and info(fleet.leader(), "role") == "master")
            if fault == "kill":
                process.wait()
                fleet.bring_back(leader)
            else:
                process.send_signal(signal.SIGCONT)
                # For a moment both servers take themselves for the primary.
                time.sleep(0.5)
                fleet.demote(leader)
            until("writes are answered", lambda: any(writer.first_after for writer in writers))
            until("all is whole", lambda: fleet.leader() != leader and fleet.is_whole(fleet.leader()))
            pauses.append(min(writer.first_after for writer in writers if writer.first_after) - began)
            fleet.rests.set()
            connection = Connection(fleet.leader(), timeout=30)
            missing = []
            for writer in writers:
                answered = writer.take(number)
                totals["answered"] += len(answered)
                missing += lost(connection, writer, answered, number)
            totals["lost"] += len(missing)
            totals["rounds with a loss"] += bool(missing)
            if missing:
                print(f"round {number} ({fault}): lost {len(missing)}: {missing[:5]}", flush=True)
            if arguments.verbose:
                print(f"round {number} ({fault}): {pauses[-1]:.2f} s", flush=True)
            connection.call("FLUSHALL", "ASYNC")
            connection.close()
            fleet.rests.clear()
        for writer in writers:
            writer.ends = True
    finally:
        fleet.end(keeps=sys.exc_info()[0] is not None)
    fences_back = sum(writer.fences_back for writer in writers)
    errors = {}
    for writer in writers:
        for word, count in writer.errors.items():
            errors[word] = errors.get(word, 0) + count
    print(*sorted(set().union(*(writer.texts for writer in writers))), sep="\n")
    pauses.sort()
    print(f"{arguments.server} by {arguments.by}, min-sync-replicas {arguments.sync}: {arguments.rounds} failovers {faults}")
    print(", ".join(f"{name} {count}" for name, count in totals.items()) + f", fences that went back {fences_back}")
    print(f"pause of writers, seconds: median {pauses[len(pauses) // 2]:.2f}, longest {pauses[-1]:.2f}; errors {errors}")
    if arguments.sync and (totals["lost"] or fences_back):
        sys.exit(1)


if __name__ == "__main__":
    main()
