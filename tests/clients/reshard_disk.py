"""What `redis-cli --cluster reshard` costs on a disk: calls of fsync at each node, and time, beside another server.

    python3 tests/clients/reshard_disk.py SLOTS[,SLOTS ...] KIND=BINARY [KIND=BINARY ...]

Three primaries with a replica each, all in folders under TMPDIR, which is to be on a disk. strace counts the calls, so
that times of one run are those under strace; `--no-strace` leaves it out. `--rebalance` adds a seventh node and gives it
its share of the slots."""
import os, re, subprocess, sys, tempfile, time

from nodes import Node, create, free_ports, until

FLAGS = {word for word in sys.argv[1:] if word.startswith("--")}
SIZES, *KINDS = [word for word in sys.argv[1:] if word not in FLAGS]
SIZES = [int(size) for size in SIZES.split(",")]
CALLS = re.compile(r"\b(fsync|fdatasync|sync_file_range)\(\d")


def cli(*arguments):
    done = subprocess.run(["redis-cli", "--cluster", *map(str, arguments)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr}"
    return done.stdout


class Counted:
    """A node whose calls strace writes down."""

    def __init__(self, node):
        self.node, self.file = node, os.path.join(node.folder, "strace")
        self.trace = subprocess.Popen(
            ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range", "-o", self.file, "-p", str(node.process.pid)],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: os.path.exists(self.file), "strace is there")

    def count(self):
        with open(self.file) as file:
            return sum(1 for line in file if CALLS.search(line))

    def stop(self):
        self.trace.terminate()
        self.trace.wait()


def run(kind, binary):
    with tempfile.TemporaryDirectory(prefix="reshard-") as folder:
        ports = free_ports(7)
        nodes = []

        def start(port):
            node = Node(port, folder)
            node.start(binary, "--cluster-node-timeout", "5000", *(["--metrics-port", "0"] if "basalt" in kind else []))
            nodes.append(node)
            return node

        for port in ports[:6]:
            start(port)
        create(nodes)
        first = f"127.0.0.1:{ports[0]}"
        name = lambda node: node.client.execute_command("CLUSTER MYID")
        primaries = [node for node in nodes if node.leads()]
        source, target, other = primaries
        replica = next(node for node in nodes if node not in primaries)
        roles = {"source": source, "target": target, "other": other, "replica": replica}
        for size in SIZES:
            counted = {} if "--no-strace" in FLAGS else {role: Counted(node) for role, node in roles.items()}
            time.sleep(1)
            begun = time.time()
            cli("reshard", first, "--cluster-from", name(source), "--cluster-to", name(target), "--cluster-slots", size,
                "--cluster-yes")
            took = time.time() - begun
            time.sleep(1)
            counts = {role: one.count() for role, one in counted.items()}
            for one in counted.values():
                one.stop()
            shown = ", ".join(f"{role} {count} ({count / size:.2f} a slot)" for role, count in counts.items())
            print(f"{kind}: reshard of {size} slots {took:.1f} s; fsyncs: {shown or 'not counted'}", flush=True)
        cli("check", first)
        if "--rebalance" in FLAGS:
            added = start(ports[6])
            cli("add-node", f"127.0.0.1:{added.port}", first)
            until(lambda: all(len(node.client.execute_command("CLUSTER NODES")) == 7 for node in nodes), "all know it")
            time.sleep(2)
            begun = time.time()
            cli("rebalance", first, "--cluster-use-empty-masters")
            took = time.time() - begun
            cli("check", first)
            print(f"{kind}: rebalance to a new node {took:.1f} s", flush=True)
        for node in nodes:
            node.kill()


for word in KINDS:
    run(*word.split("=", 1))
