"""What redis-cli --cluster and redis-benchmark --cluster do, done to a cluster of basalt and to mixed ones.

    python3 tests/clients/cluster_tools.py BASALT KIND [KIND ...]

Each KIND is `basalt` or a list of binaries by commas, which the nodes have in turns. After each step `check` finds the
cluster whole, and every key has its value."""
import os, subprocess, sys, tempfile, time

import redis
from redis.cluster import ClusterNode, RedisCluster

from nodes import Node, create, free_ports, until

BASALT = os.path.realpath(sys.argv[1])
KEYS = 2000
BEGUN = time.time()


def cli(*arguments, fails=False):
    done = subprocess.run(["redis-cli", "--cluster", *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          input="yes\n")
    text = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, f"{arguments}: {done.returncode}\n{text}"
    return text


class World:
    def __init__(self, kinds):
        self.folder = tempfile.mkdtemp(prefix="tools-")
        self.ports = iter(free_ports(9))
        self.kinds = [BASALT if kind == "basalt" else kind for kind in kinds]
        self.nodes = []
        for _ in range(6):
            self.start()
        self.members = self.nodes[:]
        create(self.members)
        self.first = f"127.0.0.1:{self.nodes[0].port}"
        self.values = {f"key:{number}": str(number) for number in range(KEYS)}
        client = self.client()
        for key, value in self.values.items():
            client.set(key, value)

    def start(self):
        node = Node(next(self.ports), self.folder)
        binary = self.kinds[len(self.nodes) % len(self.kinds)]
        # As long as by default: machines that are busy otherwise fail no node.
        node.start(binary, "--cluster-node-timeout", "15000", *(["--metrics-port", "0"] if binary == BASALT else []))
        self.nodes.append(node)
        return node

    def client(self):
        return RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", self.nodes[0].port)], decode_responses=True)

    def id(self, node):
        return node.client.execute_command("CLUSTER MYID")

    def primaries(self):
        return [node for node in self.nodes if node.leads()]

    def slots(self, node):
        lines = node.client.execute_command("CLUSTER NODES")
        own = lines[f"127.0.0.1:{node.port}"]["slots"] if isinstance(lines, dict) else []
        return sum(int(piece[-1]) - int(piece[0]) + 1 for piece in own)

    def whole(self, what):
        def knows_all(node):
            info = node.client.cluster("info")
            return int(info["cluster_known_nodes"]) == len(self.members) and info["cluster_state"] == "ok"

        until(lambda: all(knows_all(node) for node in self.members), f"all know each other after {what}")
        until(lambda: "All 16384 slots covered." in subprocess.run(
            ["redis-cli", "--cluster", "check", self.first], capture_output=True, text=True).stdout, f"whole after {what}")
        until(lambda: subprocess.run(["redis-cli", "--cluster", "check", self.first], capture_output=True).returncode == 0,
              f"agreed after {what}")
        client = self.client()
        wrong = [key for key, value in self.values.items() if client.get(key) != value]
        assert not wrong, f"{len(wrong)} keys are wrong after {what}: {wrong[:5]}"
        print(f"  {time.time() - BEGUN:5.1f} s  {what}", flush=True)

    def stop(self):
        for node in self.nodes:
            node.stop()


def main(kinds):
    world = World(kinds)
    world.whole("create")
    said = cli("info", world.first)
    assert f"[OK] {KEYS} keys in 3 primaries." in said or f"[OK] {KEYS} keys in 3 masters." in said, said
    one, two, three = world.primaries()
    before = world.slots(two)
    cli("reshard", world.first, "--cluster-from", world.id(one), "--cluster-to", world.id(two), "--cluster-slots", 100,
        "--cluster-yes")
    world.whole("reshard")
    assert world.slots(two) == before + 100, (before, world.slots(two))
    cli("rebalance", world.first, "--cluster-weight", f"{world.id(one)}=1.1", f"{world.id(two)}=1", f"{world.id(three)}=1")
    world.whole("rebalance by weights")
    assert world.slots(one) > 5700, world.slots(one)

    seventh, eighth = world.start(), world.start()
    cli("add-node", f"127.0.0.1:{seventh.port}", world.first)
    world.members.append(seventh)
    world.whole("add-node")
    cli("rebalance", world.first, "--cluster-use-empty-masters", "--cluster-weight", f"{world.id(seventh)}=0.1")
    world.whole("rebalance onto an empty node")
    assert world.slots(seventh) > 400, world.slots(seventh)
    cli("add-node", f"127.0.0.1:{eighth.port}", world.first, "--cluster-slave", "--cluster-master-id",
        world.id(seventh))
    world.members.append(eighth)
    until(eighth.has_all, "the new replica has its data")
    world.whole("add-node as a replica")

    cli("rebalance", world.first, "--cluster-weight", f"{world.id(seventh)}=0")
    world.whole("rebalance off a node")
    cli("del-node", world.first, world.id(eighth))
    cli("del-node", world.first, world.id(seventh))
    eighth.process.kill(), seventh.process.kill()
    world.nodes = world.members = world.nodes[:6]
    world.whole("del-node")

    # A reshard that was interrupted: the slot is open at both ends, and some of its keys have gone.
    slot = one.client.execute_command("CLUSTER KEYSLOT", "key:1")
    holder = next(node for node in (one, two, three) if slot in owned(node))
    other = next(node for node in (one, two, three) if node is not holder)
    other.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", world.id(holder))
    holder.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", world.id(other))
    key = holder.client.execute_command("CLUSTER GETKEYSINSLOT", slot, 1)[0]
    holder.client.execute_command("MIGRATE", "127.0.0.1", other.port, key, 0, 5000)
    said = cli("check", world.first, fails=True)
    assert "open" in said, said
    cli("fix", world.first)
    world.whole("fix of an open slot")
    # A slot without an owner, empty and with keys.
    empty = next(slot for slot in owned(one) if not one.client.execute_command("CLUSTER COUNTKEYSINSLOT", slot))
    for node in world.primaries():
        node.client.execute_command("CLUSTER DELSLOTS", empty)
    said = cli("check", world.first, fails=True)
    assert "Not all 16384 slots are covered" in said, said
    cli("fix", world.first)
    world.whole("fix of a slot without an owner")

    alone = Node(next(world.ports), world.folder)
    alone.start(world.kinds[0], "--cluster-enabled", "no", *(["--metrics-port", "0"] if world.kinds[0] == BASALT else []))
    for number in range(200):
        alone.client.set(f"alone:{number}", number)
        world.values[f"alone:{number}"] = str(number)
    cli("import", world.first, "--cluster-from", f"127.0.0.1:{alone.port}")
    alone.stop()
    world.whole("import")

    assert cli("call", world.first, "ping").count("PONG") == 6
    cli("set-timeout", world.first, 5000)
    assert all(node.client.config_get("cluster-node-timeout")["cluster-node-timeout"] == "5000" for node in world.nodes)
    target = os.path.join(world.folder, "backup")
    os.mkdir(target)
    cli("backup", world.first, target)
    assert len([name for name in os.listdir(target) if name.endswith(".rdb")]) == 3, os.listdir(target)
    world.whole("call, set-timeout and backup")

    done = subprocess.run(["redis-benchmark", "-p", str(world.nodes[0].port), "--cluster", "-n", "20000", "-r", "1000",
                           "-P", "8", "-t", "set,get", "-q"], capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stdout.replace("\r", "\n").splitlines() if "requests per second" in line]
    assert done.returncode == 0 and len(lines) == 2, done.stdout + done.stderr
    world.whole("redis-benchmark --cluster")
    world.stop()


def owned(node):
    """The slots that a node says are its own."""
    myself = node.client.execute_command("CLUSTER MYID")
    slots = set()
    for first, last, primary, *_ in redis.Redis(port=node.port).execute_command("CLUSTER SLOTS"):
        if primary[2].decode() == myself:
            slots.update(range(first, last + 1))
    return sorted(slots)


for kind in sys.argv[2:]:
    print(f"nodes of {kind}:", flush=True)
    main(kind.split(","))
