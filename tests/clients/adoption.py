"""A running cluster of redis-server, three primaries and three replicas, becomes one of basalt node by node, under load.

    python3 tests/clients/adoption.py BASALT [WRITERS]

Each replica is stopped and basalt started in its place, with its folder and its nodes.conf; when it has its primary's
data it is asked for CLUSTER FAILOVER, and the former primary, a replica by now, is replaced too. Meanwhile writers set
keys of their own to numbers that only grow, by redis-py's cluster client, and read them back. A value below the last
number that was acknowledged is a lost write, one that was never sent a wrong answer; either fails the script."""
import os, sys, tempfile, threading, time

import redis
from redis.cluster import ClusterNode, RedisCluster

from nodes import Node, create, free_ports, until

BASALT = os.path.realpath(sys.argv[1])
WRITERS = int(sys.argv[2]) if len(sys.argv) > 2 else 8
KEYS = 50


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
    create(nodes)
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
        node.take_the_place_of(primary)
        print(f"{time.time() - begun:5.1f} s  {node.port} leads in the place of {primary.port}", flush=True)
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
