"""Partitions for real: a cluster in network namespaces is cut apart, and a history of its writes is judged.

    python3 tests/partitions/main.py BASALT [--servers basalt,redis,mixed] [--scenarios NAME,...] [--keep] [--spoil]

Three primaries and three replicas, node timeout two seconds. The smaller side of the cut has the first primary, the
victim, and another one's replica; the replica of the victim, the heir, is on the larger side; each side has a client.
Judged is what Redis documents:

- in the minority writes are acknowledged for about a node timeout after the cut, by the victim;
- only those, and those that the victim acknowledged just before the cut, may be lost, unless WAIT said that a replica
  has them: the heir is the victim's only replica;
- a list has only what its writer sent there, in the order that it was sent, before and after healing;
- after healing all nodes agree on owners and roles within a bound, and replicas have what their primaries have.

Prints a table; where the victim keeps its slots, or may, "writable after" is the longest gap between two writes of the
larger side to them. Fails if basalt, alone or with redis-server beside it, breaks a rule; redis-server is only
reported."""
import argparse, json, os, platform, shutil, signal, subprocess, sys, tempfile, time

from world import HERE, NODE_TIMEOUT, Refused, World, until

# A ping may have been answered half a timeout ago when the cut comes; then the timeout counts from the next ping.
MINORITY_WRITES = NODE_TIMEOUT * 1.5 + 1.0
# A write that was acknowledged may not have left the victim yet, on a machine that has other work too.
UNSENT = 0.5
# A process that goes on serves what is in its sockets until it hears that it was replaced.
AWAKENING = 1.0
AGREEMENT = 30.0
HELD = 8.0


class Scenario:
    """How the fault begins and ends; `heirs` says that the victim must lose its slots, False that none may."""

    def __init__(self, name, begin, end, heirs=True, timeout=0.3, clock=False, needs=None):
        self.name, self.begin, self.end, self.heirs, self.timeout = name, begin, end, heirs, timeout
        self.clock, self.needs = clock, needs


def kill(world):
    world.victim.process.kill()
    world.victim.process.wait()


def set_clocks(world, offsets):
    for node, offset in zip(world.nodes, offsets):
        node.set_clock(offset)
        off = int(node.call("TIME")[0]) - time.time()
        assert abs(off - offset) < 5, f"the clock of {node.label} is off by {off:.0f} s, and not {offset}"


SCENARIOS = [
    Scenario("partition", World.cut, World.join),
    Scenario("minority hears nothing", lambda world: world.filter("-A", "INPUT", "-s"),
             lambda world: world.filter("-D", "INPUT", "-s"), needs="iptables"),
    Scenario("minority is not heard", lambda world: world.filter("-A", "OUTPUT", "-d"),
             lambda world: world.filter("-D", "OUTPUT", "-d"), needs="iptables"),
    Scenario("200 ms of delay", lambda world: world.delay(200), World.undelay, heirs=False, timeout=2.5),
    Scenario("SIGSTOP of a primary", lambda world: world.victim.process.send_signal(signal.SIGSTOP),
             lambda world: world.victim.process.send_signal(signal.SIGCONT)),
    Scenario("kill -9 of a primary", kill, lambda world: world.victim.start()),
    Scenario("clocks moved", lambda world: set_clocks(world, (3600, 0, 60, -3600, 0, -60)),
             lambda world: set_clocks(world, (0,) * 6), heirs=None, clock=True, needs="cc"),
]


class History:
    """What the writers noted, and what the nodes have in the end."""

    def __init__(self, paths, world, cut, healed):
        lines = []
        for path in paths:
            with open(path) as file:
                lines += [json.loads(line) for line in file]
        self.writes = [line for line in lines if line[5] != "read"]
        self.reads = [line for line in lines if line[5] == "read"]
        self.world, self.cut, self.healed = world, cut, healed
        self.acknowledged = [write for write in self.writes if write[5] == "acknowledged"]
        self.confirmed = sum(write[6] for write in self.acknowledged)
        self.lost, self.lost_allowed, self.faults = [], 0, []

    def spoil(self):
        """Takes a write away that a replica had confirmed, and adds one that was never sent: both must be noticed."""
        write = next(write for write in self.acknowledged if write[6] and write[3] < self.cut - UNSENT)
        entry = f"{write[0]}={write[1]}"
        assert self.ask(("LREM", write[0], 1, entry), write[0]) == 1
        self.ask(("RPUSH", write[0], f"{write[0]}=1000000000"), write[0])

    def ask(self, words, key):
        """The owner's reply."""
        node = self.world.nodes[1]
        for _ in range(5):
            try:
                return node.call(*words)
            except Refused as error:
                moved = str(error).split()
                if moved[0] != "MOVED":
                    raise
                node = next(node for node in self.world.nodes if node.ip == moved[2].rsplit(":", 1)[0])
        raise RuntimeError(f"{key} is moved from node to node")

    def may_be_lost(self, write, scenario):
        _, _, _, ended, node, _, confirmed = write
        if confirmed or not scenario.heirs:
            return False
        in_time = self.cut - UNSENT <= ended <= self.cut + MINORITY_WRITES
        on_waking = "SIGSTOP" in scenario.name and self.healed <= ended <= self.healed + AWAKENING
        return node == self.world.victim.ip and (in_time or on_waking)

    def judge(self, scenario):
        by_key = {}
        for write in self.writes:
            by_key.setdefault(write[0], []).append(write)
        for key, writes in sorted(by_key.items()):
            there = self.ask(("LRANGE", key, 0, -1), key)
            numbers = [int(entry.split("=")[1]) if entry.startswith(f"{key}=") else -1 for entry in there]
            sent = {write[1] for write in writes if write[5] != "refused"}
            if not set(numbers) <= sent:
                self.faults.append(f"{key} has what was never sent, or was refused: {sorted(set(numbers) - sent)[:5]}")
            if len(set(numbers)) < len(numbers):
                self.faults.append(f"{key} has a number twice")
            known = {write[1] for write in writes if write[5] == "acknowledged"}
            of_known = [number for number in numbers if number in known]
            if of_known != sorted(of_known):
                self.faults.append(f"{key} is not in the order of its writes")
            missing = [write for write in writes if write[5] == "acknowledged" and write[1] not in set(numbers)]
            for write in missing:
                if self.may_be_lost(write, scenario):
                    self.lost_allowed += 1
                else:
                    self.lost.append(write)
            self.judge_reads(key, writes, set(numbers), scenario)
            self.compare_replicas(key, there)
        for key, number, begun, ended, node, _, confirmed in self.lost[:10]:
            self.faults.append(f"{key}={number} was acknowledged by {node} {ended - self.cut:+.3f} s after the cut, "
                               f"{'with' if confirmed else 'without'} a replica's word, and is lost")
        for side in ("left", "right"):
            for kind, count in (("acknowledged", lambda write: True), ("confirmed", lambda write: write[6])):
                if not any(count(write) for write in self.acknowledged if write[0].startswith(side)):
                    self.faults.append(f"nothing was {kind} on the side {side}")
        late = self.last_of_minority()
        if scenario.heirs and late is not None and late > MINORITY_WRITES:
            self.faults.append(f"the victim acknowledged {late:.2f} s after the cut")
        if scenario.heirs and self.writable() is None:
            self.faults.append("the larger side was never writable again")

    def judge_reads(self, key, writes, kept, scenario):
        """What was read was sent before; after healing it is no older than what was acknowledged, and stays."""
        sent = {write[1]: write[2] for write in writes if write[5] != "refused"}
        kept_writes = [write for write in writes if write[5] == "acknowledged" and write[1] in kept]
        for _, number, begun, ended, node, _, _ in [read for read in self.reads if read[0] == key]:
            if number and (number not in sent or sent[number] > ended):
                self.faults.append(f"{key}={number} was read at {node}, and not sent before")
            if begun < self.healed:
                continue
            newest = max((write[1] for write in kept_writes if write[3] <= begun), default=0)
            if number >= newest:
                continue
            woke = "SIGSTOP" in scenario.name and node == self.world.victim.ip and ended <= self.healed + AWAKENING
            if not woke:
                self.faults.append(f"{key}={number} was read at {node} {begun - self.healed:.3f} s after healing, and "
                                   f"{newest} was acknowledged before")

    def compare_replicas(self, key, there):
        """Whatever node has the key says the same; a replica may be behind for a moment."""
        slot = self.world.nodes[1].call("CLUSTER", "KEYSLOT", key)
        ranges = self.world.nodes[1].call("CLUSTER", "SLOTS")
        pairs = next(entry[2:] for entry in ranges if entry[0] <= slot <= entry[1])
        for address in [pair[0] for pair in pairs]:
            node = next(node for node in self.world.nodes if node.ip == address)
            try:
                until(lambda: node.call_readonly("LRANGE", key, 0, -1) == there, "", 5)
            except TimeoutError:
                self.faults.append(f"{key} differs at {node.label}")

    def writable(self):
        """Seconds after the cut at which the larger side's client had a write of the victim's slots acknowledged."""
        victim = self.world.victim.ip
        times = [write[3] for write in self.acknowledged
                 if write[0].startswith("left:") and write[0].split(":")[2] == "0" and write[4] != victim
                 and write[2] >= self.cut]
        return min(times) - self.cut if times else None

    def longest_gap(self):
        """The longest time between two acknowledged writes of the larger side's client for the victim's slots."""
        times = sorted(write[3] for write in self.acknowledged
                       if write[0].startswith("left:") and write[0].split(":")[2] == "0")
        return max((later - earlier for earlier, later in zip(times, times[1:])), default=None)

    def last_of_minority(self):
        victim = self.world.victim.ip
        times = [write[3] for write in self.acknowledged if write[4] == victim and self.cut < write[3] < self.healed]
        return max(times) - self.cut if times else None


def run(scenario, binaries, clock, keep, spoil):
    world, faulty = None, True
    try:
        world = World(binaries, clock if scenario.clock else None)
        world.assemble()
        paths, clients = [], []
        addresses = [node.ip for node in world.nodes]
        for place in world.clients:
            paths.append(os.path.join(world.folder, f"{place.side}.history"))
            words = [sys.executable, os.path.join(HERE, "client.py"), place.side, paths[-1], str(scenario.timeout)]
            clients.append(world.start(["ip", "netns", "exec", place.name, *words, *addresses], None))
        time.sleep(2)
        cut = time.monotonic()
        note = scenario.begin(world)
        time.sleep(HELD)
        healed = time.monotonic()
        scenario.end(world)
        faults = []
        try:
            until(world.agrees, "the nodes agree", AGREEMENT, 0.1)
            agreed = time.monotonic() - healed
        except TimeoutError:
            agreed = None
            faults.append(f"the nodes did not agree within {AGREEMENT:.0f} s")
        time.sleep(1)
        for client in clients:
            client.terminate()
        for client in clients:
            client.wait(30)
        history = History(paths, world, cut, healed)
        if spoil:
            history.spoil()
        history.judge(scenario)
        faults += history.faults
        has_slots = world.victim.field("replication", "role") == "master"
        if scenario.heirs is not None and has_slots == scenario.heirs:
            faults.append("the victim kept its slots" if has_slots else "the victim lost its slots")
        faulty = bool(faults)
        return history, agreed, note, faults
    finally:
        if world:
            world.close(keep and faulty)


def seconds(value):
    return "—" if value is None else f"{value:.2f}"


def unavailable(scenario, clock):
    if scenario.needs == "iptables" and not shutil.which("iptables"):
        return "iptables is missing"
    if scenario.needs == "cc" and not clock:
        return "no C compiler, or it can not make clock.c"
    return None


def make_clock(folder):
    """Where the library that moves clocks is; none without a compiler."""
    library = os.path.join(folder, "clock.so")
    words = ["cc", "-O1", "-shared", "-fPIC", "-o", library, os.path.join(HERE, "clock.c")]
    return library if shutil.which("cc") and subprocess.run(words).returncode == 0 else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("basalt")
    parser.add_argument("--servers", default="basalt,redis,mixed")
    parser.add_argument("--scenarios", default=",".join(scenario.name for scenario in SCENARIOS))
    parser.add_argument("--keep", action="store_true", help="keep the logs of a run that broke a rule")
    parser.add_argument("--spoil", action="store_true", help="spoil the data before judging: every run must fail")
    options = parser.parse_args()
    # Namespaces and servers go however this ends.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    basalt, redis = os.path.realpath(options.basalt), shutil.which("redis-server")
    place = tempfile.TemporaryDirectory(prefix="partitions-clock-")
    clock = make_clock(place.name)
    # Of a mixed cluster each pair of a primary and its replica has both.
    clusters = {"basalt": [basalt] * 6, "redis": [redis] * 6, "mixed": [basalt, redis, basalt, redis, basalt, redis]}
    print(f"{platform.release()}, {os.cpu_count()} processors; {time.strftime('%Y-%m-%d %H:%M')}", flush=True)
    rows, failed, noticed = [], False, 0
    for scenario in SCENARIOS:
        if scenario.name not in options.scenarios.split(","):
            continue
        if why := unavailable(scenario, clock):
            print(f"SKIPPED: {scenario.name}: {why}", flush=True)
            continue
        for server in options.servers.split(","):
            if server != "basalt" and not redis:
                print(f"SKIPPED: {scenario.name}, {server}: redis-server is missing", flush=True)
                continue
            try:
                history, agreed, note, faults = run(scenario, clusters[server], clock, options.keep, options.spoil)
            except TimeoutError as error:
                print(f"# {scenario.name}, {server}: {error}", flush=True)
                failed |= server != "redis"
                continue
            gap = history.writable() if scenario.heirs else history.longest_gap()
            last = history.last_of_minority() if scenario.heirs else None
            rows.append(f"| {scenario.name} | {server} | {seconds(gap)} | {seconds(last)} | "
                        f"{len(history.acknowledged)} | {history.confirmed} | {history.lost_allowed} | "
                        f"{len(history.lost)} | {seconds(agreed)} |")
            print(rows[-1] + (f"  ({note})" if isinstance(note, str) else ""), flush=True)
            for fault in faults:
                print(f"#   {fault}", flush=True)
            failed |= bool(faults) and server != "redis"
            noticed += any("is lost" in fault for fault in faults) and any("never sent" in fault for fault in faults)
    if options.spoil:
        print(f"{noticed} of {len(rows)} spoilt runs were noticed")
        sys.exit(noticed < len(rows) or not rows)
    print("\n| scenario | server | writable after s | victim's last s | acknowledged | with WAIT | lost, allowed "
          "| lost, not allowed | agreed after s |\n|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    sys.exit(failed)


main()
