"""Nodes of a cluster on this machine, of basalt or of redis-server, for the scripts beside this one."""
import atexit, os, socket, subprocess, time

import redis


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
        atexit.register(self.process.kill)
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

    def kill(self):
        self.process.kill()
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

    def is_up(self):
        return self.client.cluster("info")["cluster_state"] == "ok"

    def take_the_place_of(self, primary):
        """CLUSTER FAILOVER, agreed with the primary; one that does not come about in six seconds is asked for again.

        A node that was started a moment ago refuses, as long as it has no link of the bus to its primary."""
        give_up = time.time() + 30
        while not self.leads():
            assert time.time() < give_up, f"{self.port} did not take the place of {primary.port}"
            try:
                self.client.execute_command("CLUSTER FAILOVER")
            except redis.exceptions.ResponseError as refusal:
                if "Master is down or failed" not in str(refusal):
                    raise
                time.sleep(0.1)
                continue
            end = time.time() + 6
            while not self.leads() and time.time() < end:
                time.sleep(0.02)
        until(lambda: not primary.leads() and primary.has_all(), f"{primary.port} follows")


def until(true, what, seconds=60):
    end = time.time() + seconds
    while not true():
        if time.time() > end:
            raise SystemExit(f"waited for nothing: {what}")
        time.sleep(0.05)


def create(nodes, replicas=1):
    """redis-cli makes a cluster of them, and all of it stands when this returns."""
    subprocess.run(["redis-cli", "--cluster", "create", *(f"127.0.0.1:{node.port}" for node in nodes),
                    "--cluster-replicas", str(replicas), "--cluster-yes"], stdout=subprocess.DEVNULL, check=True)
    until(lambda: all(node.is_up() for node in nodes), "the cluster")
    until(lambda: all(node.has_all() for node in nodes if not node.leads()), "the replicas")
