"""Nodes in network namespaces of their own: two bridges in a namespace between them, a trunk that joins the bridges.

Nodes of the left bridge and of the right one reach each other over the trunk alone; taking it down is a partition, and
a relay in its place delays what passes where the kernel has no netem."""
import contextlib, ctypes, fcntl, os, shutil, socket, struct, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.realpath(__file__))
NODE_TIMEOUT = 2.0
PORT = 7000
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
# Numbers of linux/ethtool.h and linux/sockios.h: the sender makes checksums and segments, so that frames are whole.
SIOCETHTOOL, OFFLOADS = 0x8946, (0x17, 0x1F, 0x24)


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def until(true, what, seconds=30.0, step=0.05):
    """Seconds until something was true."""
    begun = time.monotonic()
    while not true():
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(step)
    return time.monotonic() - begun


@contextlib.contextmanager
def inside(name):
    """The calling thread's sockets are made in another namespace."""
    with open("/proc/self/ns/net") as before, open(f"/run/netns/{name}") as there:
        if LIBC.setns(there.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            if LIBC.setns(before.fileno(), CLONE_NEWNET):
                os._exit(3)


class Refused(Exception):
    """An error reply."""


class Connection:
    """One connection that sends a command and waits for its reply, once: nothing is ever sent a second time."""

    def __init__(self, host, timeout):
        self.socket = socket.create_connection((host, PORT), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        words = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("closed")
        kind, text = line[:1], line[1:-2].decode()
        if kind == b"-":
            raise Refused(text)
        if kind == b":":
            return int(text)
        if kind == b"$":
            return None if int(text) < 0 else self.file.read(int(text) + 2)[:-2].decode()
        if kind == b"*":
            return [self.reply() for _ in range(int(text))]
        return text

    def close(self):
        with contextlib.suppress(OSError):
            self.file.close()
            self.socket.close()


class Place:
    """A namespace with one address on one of the bridges."""

    def __init__(self, world, name, side, number):
        self.name, self.side, self.ip = f"{world.prefix}{name}", side, f"10.77.{1 if side == 'left' else 2}.{number}"
        world.add_namespace(self.name)
        ip("link", "add", "eth0", "netns", self.name, "type", "veth", "peer", "name", f"p{name}", "netns", world.hub)
        ip("-n", world.hub, "link", "set", f"p{name}", "master", side, "up")
        ip("-n", self.name, "addr", "add", f"{self.ip}/16", "dev", "eth0")
        with inside(self.name), socket.socket() as any_socket:
            for offload in OFFLOADS:
                value = ctypes.create_string_buffer(struct.pack("II", offload, 0))
                request = struct.pack("16sP", b"eth0", ctypes.addressof(value))
                with contextlib.suppress(OSError):
                    fcntl.ioctl(any_socket, SIOCETHTOOL, request)
        ip("-n", self.name, "link", "set", "eth0", "up")
        ip("-n", self.name, "link", "set", "lo", "up")


class Node(Place):
    def __init__(self, world, name, side, number, binary, clock):
        super().__init__(world, name, side, number)
        self.label, self.world, self.binary = name, world, binary
        self.folder = os.path.join(world.folder, name)
        os.mkdir(self.folder)
        self.environment = dict(os.environ)
        if clock:
            self.set_clock(0)
            self.environment |= {"LD_PRELOAD": clock, "MOVED_CLOCK": os.path.join(self.folder, "clock")}

    def set_clock(self, offset):
        """Moves the wall clock that the node sees by seconds; clock.c has the file in its memory."""
        file = os.open(os.path.join(self.folder, "clock"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(file, struct.pack("q", offset * 1_000_000_000))
        os.close(file)

    def start(self):
        options = ["--port", str(PORT), "--bind", self.ip, "--protected-mode", "no", "--save", "", "--dir", self.folder,
                   "--cluster-enabled", "yes", "--cluster-node-timeout", str(int(NODE_TIMEOUT * 1000)),
                   "--repl-diskless-sync-delay", "0"]
        if "redis-server" not in os.path.basename(self.binary):
            options += ["--metrics-port", "0"]
        log = open(os.path.join(self.folder, "log"), "ab")
        words = ["ip", "netns", "exec", self.name, self.binary, *options]
        self.process = self.world.start(words, log, self.environment)
        until(self.answers, f"{self.label} answers")

    def call(self, *words, first=None):
        with inside(self.name):
            connection = Connection(self.ip, 5)
        try:
            if first:
                connection.call(first)
            return connection.call(*words)
        finally:
            connection.close()

    def call_readonly(self, *words):
        """The reply of a replica, too."""
        return self.call(*words, first="READONLY")

    def answers(self):
        try:
            return self.call("PING") == "PONG"
        except (OSError, Refused):
            return False

    def field(self, section, name):
        words = ("CLUSTER", "INFO") if section == "cluster" else ("INFO", section)
        for line in self.call(*words).splitlines():
            if line.startswith(name + ":"):
                return line.split(":", 1)[1]
        return None

    def view(self):
        """Who is whose replica and has which slots, as this node sees it; None if it holds a node to be unwell."""
        seen = set()
        for line in self.call("CLUSTER", "NODES").splitlines():
            identity, _, flags, primary, *_ = words = line.split()
            flags = [flag for flag in flags.split(",") if flag != "myself"]
            if flags not in (["master"], ["slave"]):
                return None
            slots = [word for word in words[8:] if not word.startswith("[")]
            seen.add((identity, flags[0], primary, tuple(slots)))
        return frozenset(seen)


class World:
    """Six nodes, two clients' places, and the trunk; all of it goes when it is closed."""

    def __init__(self, binaries, clock):
        self.prefix = f"bp{os.getpid()}-"
        self.hub, self.namespaces, self.processes = f"{self.prefix}hub", [], []
        self.folder = tempfile.mkdtemp(prefix="partitions-")
        try:
            self.build(binaries, clock)
        except BaseException:
            self.close(False)
            raise

    def build(self, binaries, clock):
        self.add_namespace(self.hub)
        for side in ("left", "right"):
            ip("-n", self.hub, "link", "add", side, "type", "bridge")
            ip("-n", self.hub, "link", "set", side, "up")
        self.add_trunk("trunk-l", "left", "trunk-r", "right")
        # The smaller side, right, has the first primary, and the second one's replica.
        sides = ("right", "left", "left", "left", "right", "left")
        self.nodes = [Node(self, f"n{at}", side, 10 + at, binaries[at], clock) for at, side in enumerate(sides)]
        self.clients = [Place(self, f"c{side}", side, 100) for side in ("left", "right")]
        self.victim, self.heir = self.nodes[0], self.nodes[3]

    def add_namespace(self, name):
        ip("netns", "add", name)
        self.namespaces.append(name)

    def add_trunk(self, one, one_bridge, other, other_bridge):
        ip("-n", self.hub, "link", "add", one, "type", "veth", "peer", "name", other)
        for name, bridge in ((one, one_bridge), (other, other_bridge)):
            if bridge:
                ip("-n", self.hub, "link", "set", name, "master", bridge)
            ip("-n", self.hub, "link", "set", name, "up")

    def start(self, words, output, environment=None):
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        self.processes.append(process)
        return process

    def assemble(self):
        """Three primaries, each with a replica."""
        for node in self.nodes:
            node.start()
        for at, node in enumerate(self.nodes):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
            node.call("CLUSTER", "MEET", self.nodes[0].ip, PORT)
        for at in range(3):
            self.nodes[at].call("CLUSTER", "ADDSLOTSRANGE", 16384 * at // 3, 16384 * (at + 1) // 3 - 1)
        until(lambda: all(node.field("cluster", "cluster_known_nodes") == "6" for node in self.nodes), "all have met")
        # Handshakes are over when each knows all by their real names.
        until(lambda: len({frozenset(entry[0] for entry in node.view() or [[node.label]]) for node in self.nodes}) == 1,
              "all know each other")
        for at in range(3):
            self.nodes[3 + at].call("CLUSTER", "REPLICATE", self.nodes[at].call("CLUSTER", "MYID"))
        until(self.agrees, "the cluster is whole")

    def agrees(self):
        """All nodes see the same well cluster, and each replica has its primary's data."""
        try:
            views = [node.view() for node in self.nodes]
            if None in views or len(set(views)) > 1:
                return False
            up = all(node.field("cluster", "cluster_state") == "ok" for node in self.nodes)
            replicas = [node for node in self.nodes if node.field("replication", "role") == "slave"]
            linked = all(node.field("replication", "master_link_status") == "up" for node in replicas)
            return up and linked and len(replicas) == 3
        except (OSError, Refused):
            return False

    def cut(self):
        ip("-n", self.hub, "link", "set", "trunk-l", "down")

    def join(self):
        ip("-n", self.hub, "link", "set", "trunk-l", "up")

    def filter(self, verb, chain, option):
        """Drops, or no longer drops, what the nodes of the smaller side receive from the other, or send to it."""
        for place in self.nodes + self.clients:
            if place.side == "right":
                rule = ["iptables", "-w", verb, chain, option, "10.77.1.0/24", "-j", "DROP"]
                subprocess.run(["ip", "netns", "exec", place.name, *rule], check=True)

    def delay(self, milliseconds):
        """Delays each direction; says by what means."""
        netem = all(subprocess.run(["ip", "netns", "exec", self.hub, "tc", "qdisc", "add", "dev", name, "root", "netem",
                                    "delay", f"{milliseconds}ms"], stderr=subprocess.DEVNULL).returncode == 0
                    for name in ("trunk-l", "trunk-r"))
        if netem:
            return "tc netem"
        self.add_trunk("slow-l", "left", "end-l", None)
        self.add_trunk("slow-r", "right", "end-r", None)
        words = [sys.executable, os.path.join(HERE, "relay.py"), "end-l", "end-r", str(milliseconds)]
        self.relay = self.start(["ip", "netns", "exec", self.hub, *words], None)
        self.cut()
        return "a relay, for this kernel has no netem"

    def undelay(self):
        if hasattr(self, "relay"):
            for name in ("slow-l", "slow-r"):
                ip("-n", self.hub, "link", "del", name)
            self.join()
        else:
            for name in ("trunk-l", "trunk-r"):
                subprocess.run(["ip", "netns", "exec", self.hub, "tc", "qdisc", "del", "dev", name, "root"], check=True)

    def close(self, keep):
        for process in self.processes:
            process.kill()
            process.wait()
        for name in self.namespaces:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
        if keep:
            print(f"logs are kept in {self.folder}", flush=True)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
