"""A rolling upgrade under load of redis-py: the errors that an application sees, and its longest pause.

    rolling_upgrade.py BINARY [--cluster] [--address name|fixed] [--threads N] [--settle SECONDS]

BINARY is basalt, redis-server or valkey-server. Without --cluster: a primary with two replicas; the replicas restart,
FAILOVER to one, the old primary restarts, and FAILOVER back to it. Clients connect by a host name that follows the
primary a second after each failover, as a Kubernetes Service does (name), or by the address of the first primary
alone (fixed). With --cluster: three primaries with a replica each, of which each replica restarts, CLUSTER FAILOVER,
and each old primary restarts; servers that know CLUSTER MIGRATESLOTS also move slots there and back. With --node the load
is rolling_upgrade.js, for which NODE_PATH leads to node-redis (npm install redis).

redis-py is as it comes, with its default retries. It ignores the port of a MOVING notification, so that the servers of
a group have one port and addresses of their own in 127.0.0.0/8.
"""
import argparse, atexit, collections, json, os, re, socket, subprocess, tempfile, threading, time

import redis
from redis.maint_notifications import MaintNotificationsConfig

import nodes
from nodes import until

NAME = "cache.test"
current = {"address": None}
resolve = socket.getaddrinfo


def resolve_name(host, *rest, **more):
    return resolve(current["address"] if host == NAME else host, *rest, **more)


socket.getaddrinfo = resolve_name


class Server:
    """A server with an address of its own, which restarts with the data of its primary."""

    def __init__(self, binary, address, port, folder):
        self.binary, self.address, self.port = binary, address, port
        self.folder = os.path.join(folder, address)
        os.mkdir(self.folder)
        self.client = redis.Redis(host=address, port=port, decode_responses=True, protocol=2, socket_timeout=30)

    def start(self, primary=None):
        following = ["--replicaof", primary.address, str(primary.port)] if primary else []
        log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen(
            [self.binary, "--port", str(self.port), "--bind", self.address, "--save", "", "--dir", self.folder,
             "--repl-diskless-sync-delay", "0", "--replica-announce-ip", self.address, *following], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        atexit.register(self.process.kill)
        until(self.answers, f"{self.address} answers")
        if primary:
            self.await_link()

    def await_link(self):
        until(lambda: self.info().get("master_link_status") == "up", f"{self.address} follows")

    def answers(self):
        try:
            return self.client.ping()
        except redis.exceptions.RedisError:
            return False

    def info(self):
        try:
            return self.client.info("replication")
        except redis.exceptions.RedisError:
            return {}

    def restart(self, primary):
        self.process.terminate()
        self.process.wait()
        self.start(primary)

    def fail_over_to(self, other):
        self.client.execute_command("FAILOVER", "TO", other.address, other.port, "TIMEOUT", 30000)
        until(lambda: other.info().get("role") == "master", f"{other.address} leads")
        self.await_link()


class Load:
    """Threads that write, read, run transactions, and take what they put into lists, until they are stopped."""

    def __init__(self, client, threads):
        self.client, self.stopped = client, threading.Event()
        self.errors, self.lock = collections.Counter(), threading.Lock()
        self.requests, self.longest_s, self.written, self.wrong = 0, 0.0, {}, 0
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        count, last = 0, time.monotonic()
        key, queue, total = f"{{{number}}}:key", f"{{{number}}}:queue", f"{{{number}}}:total"
        while not self.stopped.is_set():
            count += 1
            steps = [
                lambda: self.write(key, count),
                lambda: self.check(key),
                lambda: self.client.pipeline(transaction=True).incr(total).get(key).execute(),
                lambda: self.client.rpush(queue, count),
                lambda: self.client.blpop(queue, timeout=1),
            ]
            for step in steps:
                try:
                    step()
                    with self.lock:
                        self.requests += 1
                        if step is steps[0]:
                            now = time.monotonic()
                            pause, last = now - last, now
                            self.longest_s = max(self.longest_s, pause)
                except Exception as error:
                    kind = re.sub(r"[{]?\d+[}]?", "#", f"{type(error).__name__}: {str(error)[:60]}")
                    with self.lock:
                        self.errors[kind] += 1
                    time.sleep(0.01)

    def write(self, key, value):
        self.client.set(key, value)
        self.written[key] = value

    def check(self, key):
        # The value after an error is not known: it may be the one that was being written.
        found = int(self.client.get(key) or 0)
        if found < self.written.get(key, 0):
            with self.lock:
                self.wrong += 1

    def end(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(30)
        return {"requests": self.requests, "errors": sum(self.errors.values()), "kinds": dict(self.errors),
                "stale_or_lost": self.wrong, "longest_pause_of_writes_ms": round(self.longest_s * 1000)}


class NodeLoad:
    """The load of rolling_upgrade.js."""

    def __init__(self, host, port, threads, *kind):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rolling_upgrade.js")
        self.process = subprocess.Popen(["node", script, host, str(port), str(threads), *kind], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)

    def end(self):
        said, _ = self.process.communicate(timeout=60)
        return json.loads(said)


def standalone(binary, folder, options):
    port = nodes.free_ports(1)[0]
    one, two, three = [Server(binary, f"127.0.0.{last}", port, folder) for last in (1, 2, 3)]
    one.start()
    two.start(one)
    three.start(one)
    current["address"] = one.address
    host = NAME if options.address == "name" else one.address
    if options.node:
        load = NodeLoad(one.address, port, options.threads)
    else:
        client = redis.Redis(host=host, port=port, protocol=3, maint_notifications_config=MaintNotificationsConfig())
        load = Load(client, options.threads)
    time.sleep(options.settle)
    for replica in (two, three):
        replica.restart(one)
    one.fail_over_to(two)
    time.sleep(1)
    current["address"] = two.address
    time.sleep(options.settle)
    one.restart(two)
    three.client.execute_command("REPLICAOF", two.address, port)
    three.await_link()
    time.sleep(options.settle)
    two.fail_over_to(one)
    time.sleep(1)
    current["address"] = one.address
    time.sleep(options.settle)
    return load.end()


def clustered(binary, folder, options):
    members = [nodes.Node(port, folder) for port in nodes.free_ports(6)]
    for member in members:
        member.start(binary)
    nodes.create(members)
    if options.node:
        load = NodeLoad("127.0.0.1", members[0].port, options.threads, "cluster")
    else:
        client = redis.RedisCluster(host="127.0.0.1", port=members[0].port, protocol=3,
                                    maint_notifications_config=MaintNotificationsConfig())
        load = Load(client, options.threads)
    time.sleep(options.settle)
    primaries = [member for member in members if member.leads()]
    pairs = []
    for primary in primaries:
        followers = [member for member in members if not member.leads() and
                     int(member.info()["master_port"]) == primary.port]
        pairs.append((primary, followers[0]))
    for primary, replica in pairs:
        replica.stop()
        replica.start(binary)
        until(replica.has_all, f"{replica.port} follows")
        # A node that started a moment ago may not agree with its primary before the time of the failover is over.
        time.sleep(options.settle)
        replica.take_the_place_of(primary)
        time.sleep(options.settle)
        primary.stop()
        primary.start(binary)
        until(lambda: primary.has_all() and primary.is_up(), f"{primary.port} is back")
        time.sleep(options.settle)
    move_slots(pairs[0][1], pairs[1][1])
    time.sleep(options.settle)
    return load.end()


def move_slots(one, other):
    """Moves a hundred slots there and back, where CLUSTER MIGRATESLOTS is known."""
    for source, target in ((one, other), (other, one)):
        first = 0 if source is one else slots["first"]
        if source is one:
            line = next(row for row in source.client.execute_command("CLUSTER NODES").values() if "myself" in row["flags"])
            first = int(line["slots"][0][0])
            slots["first"] = first
        identity = target.client.execute_command("CLUSTER MYID")
        try:
            source.client.execute_command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, first + 99, "NODE", identity)
        except redis.exceptions.ResponseError as refusal:
            print(f"no slots are moved: {refusal}")
            return
        until(lambda: all("in-progress" not in str(job) and "success" in str(job) for job in
                          source.client.execute_command("CLUSTER", "GETSLOTMIGRATIONS")[:1]), "the slots move")
        time.sleep(1)


slots = {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--address", choices=["name", "fixed"], default="name")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--settle", type=float, default=2)
    parser.add_argument("--node", action="store_true", help="the load is node-redis")
    parser.add_argument("--allow-errors", action="store_true", help="for servers that are compared")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = (clustered if options.cluster else standalone)(options.binary, folder, options)
    print(json.dumps(outcome, indent=1))
    if not options.allow_errors and (outcome["errors"] or outcome["stale_or_lost"]):
        raise SystemExit("an application would have noticed")


if __name__ == "__main__":
    main()
