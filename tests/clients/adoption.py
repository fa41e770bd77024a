"""A running cluster of redis-server, three primaries and three replicas, becomes one of basalt node by node, under load.

    python3 tests/clients/adoption.py BASALT [WRITERS]

Each replica is stopped and basalt started in its place, with its folder and its nodes.conf; when it has its primary's
data it is asked for CLUSTER FAILOVER, and the former primary, a replica by now, is replaced too. Meanwhile writers set
keys of their own to numbers that only grow, by redis-py's cluster client, and read them back. A value below the last
number that was acknowledged is a lost write, one that was never sent a wrong answer; either fails the script."""
import os, socket, subprocess, sys, tempfile, threading, time

import redis
from redis.cluster import ClusterNode, RedisCluster

BASALT = os.path.realpath(sys.argv[1])
WRITERS = int(sys.argv[2]) if len(sys.argv) > 2 else 8
KEYS = 50


def free_ports(count):
    """Ports whose bus port, 10000 above, is free too."""
    found = []
    for port in range(21000, 30000):
        try:
            for at in (port, port + 10000):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", at))
        except OSError:
            continue
        found.append(port)
        if len(found) == count:
            return found
    raise SystemExit("no free ports")


class Node:
    def __init__(self, port, folder):
        self.port, self.folder = port, os.path.join(folder, str(port))
        os.mkdir(self.folder)
        self.client = redis.Redis(port=port, decode_responses=True, socket_timeout=10)

    def start(self, binary, *more):
        log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen(
            [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder,
             "--cluster-enabled", "yes", "--cluster-node-timeout", "3000", "--repl-diskless-sync-delay", "0", *more],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self.answers, f"{self.port} answers")

    def answers(self):
        try:
            return self.client.ping()
        except redis.exceptions.RedisError:
            return False

    def stop(self):
        try:
            self.client.shutdown(nosave=True)
        except redis.exceptions.RedisError:
            pass
        self.process.wait()

    def info(self):
        return self.client.info("replication")

    def has_all(self):
        try:
            return self.info().get("master_link_status") == "up"
        except redis.exceptions.RedisError:
            return False

    def leads(self):
        return self.info()["role"] == "master"


def until(true, what, seconds=60):
    end = time.time() + seconds
    while not true():
        if time.time() > end:
            raise SystemExit(f"waited for nothing: {what}")
        time.sleep(0.05)


class Writer(threading.Thread):
    def __init__(self, number, ports):
        super().__init__(daemon=True)
        self.number, self.ports = number, ports
        self.sent, self.acknowledged, self.wrong = {}, {}, []
        self.writes = self.reads = 0
        self.errors, self.running = {}, True
        self.longest = 0.0

    def client(self):
        return RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", port) for port in self.ports],
                            socket_timeout=5, decode_responses=True)

    def run(self):
        client, number = self.client(), 0
        while self.running:
            number += 1
            key = f"writer:{self.number}:{number % KEYS}"
            begun = time.time()
            try:
                self.sent[key] = number
                client.set(key, number)
                self.acknowledged[key] = number
                self.writes += 1
                self.check(key, client.get(key))
                self.reads += 1
            except (redis.exceptions.RedisError, OSError) as error:
                kind = type(error).__name__
                self.errors[kind] = self.errors.get(kind, 0) + 1
                time.sleep(0.02)
            self.longest = max(self.longest, time.time() - begun)

    def check(self, key, value):
        least, most = self.acknowledged.get(key, 0), self.sent.get(key, 0)
        if not least <= int(value or 0) <= most:
            self.wrong.append(f"{key} is {value}, and {least} was acknowledged and {most} sent")


def main():
    folder = tempfile.mkdtemp(prefix="adoption-")
    nodes = [Node(port, folder) for port in free_ports(6)]
    ports = [node.port for node in nodes]
    for node in nodes:
        node.start("redis-server")
    create = ["redis-cli", "--cluster", "create", *(f"127.0.0.1:{port}" for port in ports), "--cluster-replicas", "1",
              "--cluster-yes"]
    subprocess.run(create, stdout=subprocess.DEVNULL, check=True)
    until(lambda: all(node.client.cluster("info")["cluster_state"] == "ok" for node in nodes), "the cluster")
    until(lambda: all(node.has_all() for node in nodes if not node.leads()), "the replicas")
    writers = [Writer(number, ports) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    begun = time.time()
    time.sleep(1)

    def replace(node):
        node.stop()
        node.start(BASALT, "--metrics-port", "0")
        until(node.has_all, f"{node.port} has the data")
        print(f"{time.time() - begun:5.1f} s  {node.port} is basalt, and has its primary's data", flush=True)

    for node in [node for node in nodes if not node.leads()]:
        replace(node)
        primary = next(other for other in nodes if other.port == int(node.info()["master_port"]))
        # Agreed with the primary; one that does not come about in five seconds is asked for again.
        for _ in range(5):
            node.client.execute_command("CLUSTER FAILOVER")
            end = time.time() + 6
            while not node.leads() and time.time() < end:
                time.sleep(0.02)
            if node.leads():
                break
        assert node.leads(), f"{node.port} did not take the place of {primary.port}"
        print(f"{time.time() - begun:5.1f} s  {node.port} leads in the place of {primary.port}", flush=True)
        until(lambda: not primary.leads() and primary.has_all(), f"{primary.port} follows")
        replace(primary)
    time.sleep(1)
    for writer in writers:
        writer.running = False
    for writer in writers:
        writer.join()
    servers = [node.client.info("server") for node in nodes]
    assert all("basalt_version" in server or server.get("server_name") == "basalt" for server in servers), servers[0]
    client = writers[0].client()
    for writer in writers:
        for key in writer.acknowledged:
            writer.check(key, client.get(key))
    wrong = [text for writer in writers for text in writer.wrong]
    errors = {}
    for writer in writers:
        for kind, count in writer.errors.items():
            errors[kind] = errors.get(kind, 0) + count
    writes, longest = sum(writer.writes for writer in writers), max(writer.longest for writer in writers)
    print(f"{writes} writes acknowledged and read back, errors {errors}, the longest wait {longest:.2f} s, "
          f"{len(wrong)} lost or wrong")
    for node in nodes:
        node.stop()
    if wrong:
        raise SystemExit("\n".join(wrong[:20]))


main()
