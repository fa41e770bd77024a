"""Six nodes that nobody assembles, and their restarts, under load.

    python3 tests/clients/assembly.py BASALT [ROUNDS [PORT]]

Six new nodes with `cluster-size 3` and `cluster-replicas 1` find each other by one name, which has an address for each
node, as that of a headless service. When they are a cluster, writers set keys of their own to numbers that only grow,
and the nodes are restarted ROUNDS times (20), each time with new addresses: one by one, all at once, or all at once by
SIGKILL. After each round all slots must be served again and each key have the last acknowledged number or a later one:
the orderly rounds may lose nothing, a round of SIGKILL what `appendfsync everysec` allows, which is counted. Then each
primary gets SIGTERM in turn, and the longest wait of a writer is measured.

The name is in a hosts file that only this process and its children see, for which the script needs the right to mount."""
import atexit, ctypes, os, random, shutil, signal, socket, subprocess, sys, tempfile, threading, time

import redis

BASALT = os.path.realpath(sys.argv[1])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
PORT = int(sys.argv[3]) if len(sys.argv) > 3 else 21500
BUS_PORT = PORT + 1
NAME, COUNT = "nodes.test", 6
WRITERS, KEYS = 4, 25
NODE_TIMEOUT = 3000
FOLDER = tempfile.mkdtemp(prefix="assembly-")
HOSTS = os.path.join(FOLDER, "hosts")
CLONE_NEWNS = 0x00020000
REDIS_ERRORS = (redis.exceptions.RedisError, OSError)


def own_hosts():
    """Puts a hosts file of our own in place of the system's, for this process and its children."""
    write_hosts([])
    is_apart = ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) == 0
    commands = [["mount", "--make-rprivate", "/"], ["mount", "--bind", HOSTS, "/etc/hosts"]]
    if not is_apart or any(subprocess.run(command, capture_output=True).returncode for command in commands):
        print("SKIPPED: a hosts file of our own needs the right to mount")
        sys.exit(0)


def write_hosts(addresses):
    # Written in place, as the file is mounted.
    with open(HOSTS, "w") as hosts:
        hosts.write("127.0.0.1 localhost\n" + "".join(f"{address} {NAME}\n" for address in addresses))


def until(holds, what, seconds=90):
    end = time.time() + seconds
    while time.time() < end:
        try:
            if holds():
                return
        except REDIS_ERRORS:
            pass
        time.sleep(0.05)
    for node in nodes:
        print(node.address, node.state(), file=sys.stderr)
    raise SystemExit(f"not within {seconds} s: {what} (folder {FOLDER})")


class Node:
    def __init__(self, number):
        self.number, self.life, self.process = number, 0, None
        self.folder = os.path.join(FOLDER, str(number))
        os.mkdir(self.folder)
        atexit.register(lambda: self.process and self.process.kill())

    def move(self):
        """Gives the node an address that no node had before."""
        self.life += 1
        self.address = f"127.{20 + self.life // 250}.{self.life % 250}.{self.number + 1}"
        self.client = redis.Redis(self.address, PORT, decode_responses=True, socket_timeout=5)

    def start(self):
        log = open(os.path.join(self.folder, "log"), "ab")
        arguments = {
            "port": PORT, "cluster-port": BUS_PORT, "bind": self.address, "bind-source-addr": self.address,
            "dir": self.folder, "cluster-enabled": "yes", "cluster-node-timeout": NODE_TIMEOUT,
            "cluster-seeds": f"{NAME}:{PORT}@{BUS_PORT}", "cluster-size": COUNT // 2, "cluster-replicas": 1,
            "availability-zone": "abc"[self.number % 3], "shutdown-on-sigterm": "failover", "appendonly": "yes",
            "save": "", "repl-diskless-sync-delay": 0, "metrics-port": 0, "threads": 1, "shards": 64}
        words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        self.process = subprocess.Popen([BASALT, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)

    def wait(self):
        if self.process.wait(60) not in (0, -signal.SIGKILL):
            raise SystemExit(f"{self.address} ended with {self.process.returncode}")

    def state(self):
        try:
            info = self.client.execute_command("CLUSTER INFO")
            info = info if isinstance(info, dict) else dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
            return {name: info.get(name) for name in ("cluster_state", "cluster_assembly", "cluster_known_nodes",
                                                      "cluster_assembly_hindrance")} | self.role()
        except REDIS_ERRORS as error:
            return {"error": str(error)}

    def role(self):
        info = self.client.info("replication")
        return {"role": info["role"], "link": info.get("master_link_status", "up")}

    def serves(self):
        state = self.state()
        return (state.get("cluster_state"), state.get("cluster_assembly"), state.get("link")) == ("ok", "assembled", "up")


def all_serve():
    """All slots are served in the eyes of all nodes, and each primary has its replica."""
    if not all(node.serves() for node in nodes):
        return False
    roles = [node.role()["role"] for node in nodes]
    return roles.count("master") == roles.count("slave") == COUNT // 2


class Client:
    """A client of the cluster that knows the name alone: it follows redirections, and asks for the slots when a node does
    not answer."""

    def __init__(self):
        self.connections, self.owners = {}, []

    def connection(self, place):
        if place not in self.connections:
            self.connections[place] = redis.Redis(*place, decode_responses=True, socket_timeout=2,
                                                  socket_connect_timeout=1)
        return self.connections[place]

    def refresh(self):
        found = {entry[4][0] for entry in socket.getaddrinfo(NAME, PORT, type=socket.SOCK_STREAM)}
        for address in random.sample(sorted(found), len(found)):
            try:
                ranges = self.connection((address, PORT)).execute_command("CLUSTER SLOTS")
                owners = [(first, last, place) for (first, last), place in self.ranges(ranges)]
                if owners:
                    self.owners = owners
                    return
            except REDIS_ERRORS:
                self.connections.pop((address, PORT), None)

    @staticmethod
    def ranges(reply):
        if isinstance(reply, dict):
            return [(slots, nodes["primary"][:2]) for slots, nodes in reply.items()]
        return [((entry[0], entry[1]), (entry[2][0], entry[2][1])) for entry in reply]

    def run(self, slot, *words):
        """Runs a command once; raises what it meets, when it has looked for the owner again."""
        place = next((tuple(place) for first, last, place in self.owners if first <= slot <= last), None)
        if place is None:
            self.refresh()
            raise ConnectionError("no owner is known")
        try:
            return self.connection(place).execute_command(*words)
        except redis.exceptions.MovedError as moved:
            self.owners = [entry for entry in self.owners if not entry[0] <= slot <= entry[1]]
            self.owners.append((slot, slot, (moved.host, int(moved.port))))
            self.refresh()
            raise
        except REDIS_ERRORS:
            self.connections.pop(place, None)
            self.refresh()
            raise


class Writer(threading.Thread):
    def __init__(self, number):
        super().__init__(daemon=True)
        self.keys = [f"writer:{number}:{key}" for key in range(KEYS)]
        self.slots = {key: redis.crc.key_slot(key.encode()) for key in self.keys}
        self.sent, self.acknowledged = dict.fromkeys(self.keys, 0), dict.fromkeys(self.keys, 0)
        self.writes, self.errors, self.is_running = 0, 0, True
        self.longest, self.since = 0.0, {}
        self.lock = threading.Lock()

    def run(self):
        client, number, key = Client(), 0, None
        while self.is_running:
            # A write that failed is repeated until it succeeds, and the time of all attempts counts.
            key = key if key in self.since else random.choice(self.keys)
            number += 1
            with self.lock:
                begun = self.since.setdefault(key, time.time())
                try:
                    self.sent[key] = number
                    client.run(self.slots[key], "SET", key, number)
                    self.acknowledged[key] = number
                    self.writes += 1
                    self.longest = max(self.longest, time.time() - begun)
                    del self.since[key]
                except REDIS_ERRORS:
                    self.errors += 1
            time.sleep(0.005)

    def take_longest(self):
        with self.lock:
            now = time.time()
            longest = max([self.longest, *(now - begun for begun in self.since.values())])
            self.longest, self.since = 0.0, {}
            return longest

    def check(self, client):
        """Returns the keys whose value is below the last acknowledged one, which counts from then on."""
        lost = []
        with self.lock:
            for key in self.keys:
                value = get(client, self.slots[key], key)
                least, most = self.acknowledged[key], self.sent[key]
                if value > most:
                    raise SystemExit(f"{key} is {value}, and {most} was sent")
                if value < least:
                    lost.append(f"{key} is {value}, and {least} was acknowledged")
                    self.acknowledged[key] = value
        return lost


def get(client, slot, key):
    for _ in range(500):
        try:
            return int(client.run(slot, "GET", key) or 0)
        except REDIS_ERRORS:
            time.sleep(0.02)
    raise SystemExit(f"{key} can not be read")


def restart_all(how):
    for node in nodes:
        node.stop(how)
    for node in nodes:
        node.wait()
        node.move()
    write_hosts([node.address for node in nodes])
    begun = time.time()
    for node in nodes:
        node.start()
    until(all_serve, "all slots are served again")
    return time.time() - begun


def restart_one_by_one():
    longest = 0.0
    for node in nodes:
        node.stop()
        node.wait()
        node.move()
        write_hosts([node.address for node in nodes])
        begun = time.time()
        node.start()
        until(all_serve, f"{node.address} is back")
        longest = max(longest, time.time() - begun)
    return longest


def check_by_redis_cli():
    command = ["redis-cli", "--cluster", "check", f"{nodes[0].address}:{PORT}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or "All 16384 slots covered" not in done.stdout or "All nodes agree" not in done.stdout:
        raise SystemExit(f"redis-cli --cluster check: {done.stdout}{done.stderr}")


def main():
    for node in nodes:
        node.move()
    write_hosts([node.address for node in nodes])
    begun = time.time()
    for node in nodes:
        node.start()
    until(lambda: all(node.serves() for node in nodes), "the nodes are a cluster")
    print(f"{COUNT} new nodes are a cluster after {time.time() - begun:.2f} s", flush=True)
    until(all_serve, "each primary has its replica")
    check_by_redis_cli()
    names = sorted(node.client.execute_command("CLUSTER MYID") for node in nodes)
    plan = {node.number: assembly_of(node) for node in nodes}
    writers = [Writer(number) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    lost_by_kill = 0
    for number in range(ROUNDS):
        time.sleep(0.5)
        kind = "killed" if number % 5 == 4 else ("one by one", "all at once")[number % 2]
        took = {"killed": lambda: restart_all(signal.SIGKILL), "all at once": lambda: restart_all(signal.SIGTERM),
                "one by one": restart_one_by_one}[kind]()
        longest = max(writer.take_longest() for writer in writers)
        client = Client()
        lost = [text for writer in writers for text in writer.check(client)]
        for writer in writers:
            # Writers have waited for the check.
            writer.take_longest()
        print(f"round {number + 1:2}, {kind:11}: slots covered {took:5.2f} s after the start, longest wait {longest:5.2f} s, "
              f"{len(lost)} keys with a lost write", flush=True)
        if kind == "killed":
            lost_by_kill += len(lost)
        elif lost:
            raise SystemExit("\n".join(lost[:20]))
    assert names == sorted(node.client.execute_command("CLUSTER MYID") for node in nodes), "nodes have new names"
    assert plan == {node.number: assembly_of(node) for node in nodes}, "the cluster was assembled anew"
    waits = []
    for node in [node for node in nodes if node.role()["role"] == "master"]:
        time.sleep(1)
        for writer in writers:
            writer.take_longest()
        node.stop()
        node.wait()
        time.sleep(1)
        waits.append(max(writer.take_longest() for writer in writers))
        node.start()
        until(all_serve, f"{node.address} is back")
    print("SIGTERM of each primary: longest waits of a writer " + ", ".join(f"{1000 * wait:.0f} ms" for wait in waits))
    for writer in writers:
        writer.is_running = False
    for writer in writers:
        writer.join()
    client = Client()
    lost = [text for writer in writers for text in writer.check(client)]
    check_by_redis_cli()
    print(f"{sum(writer.writes for writer in writers)} writes acknowledged, {sum(writer.errors for writer in writers)} "
          f"refused or unanswered; keys with a lost write: {len(lost)} in orderly restarts, {lost_by_kill} by SIGKILL")
    for node in nodes:
        node.stop(signal.SIGKILL)
        node.wait()
    if lost:
        raise SystemExit("\n".join(lost[:20]))
    shutil.rmtree(FOLDER)


def assembly_of(node):
    """Returns what nodes.conf says about the assembly: how far it is, its term and its plan."""
    with open(os.path.join(node.folder, "nodes.conf")) as file:
        return file.read().split(" assembly ")[1].split()[0]


own_hosts()
nodes = [Node(number) for number in range(COUNT)]
main()
