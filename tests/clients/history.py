"""A client library's own view of a cluster of three primaries and three replicas while slots move and primaries change.

    python3 tests/clients/history.py BASALT CLIENT [ARGUMENT ...]

CLIENT gets the ports behind its arguments. Until its standard input ends it sets keys of its own to numbers that only
grow, and reads them back; then it prints what it saw as JSON. A value that was never sent, or one below the last number
that was acknowledged, is wrong. Meanwhile redis-cli reshards, each primary is replaced by CLUSTER FAILOVER, and last one
is killed. What it had acknowledged and not yet sent to its replica is lost then, in Redis as here: the line `mark`, two
seconds before, has the client remember what it had by then, and only a value below that is wrong from there on; one
below the last acknowledged number counts as lost. Errors of other kinds than a cluster of redis-server gives fail the
script too."""
import json, os, re, subprocess, sys, tempfile, time

from nodes import Node, create, free_ports, until

BASALT = os.path.realpath(sys.argv[1])
# Of a server whose place another takes, of one that is gone, and of a cluster that has not yet agreed.
ERRORS = re.compile(r"CLUSTERDOWN|READONLY|MASTERDOWN|LOADING|TRYAGAIN|MOVED|ASK|UNBLOCKED|connect|Connection|closed|refused|"
                    r"reset|broken pipe|timed out|timeout|EOF|disconnected|Too many Cluster redirections|Failed to refresh",
                    re.IGNORECASE)


def main():
    folder = tempfile.mkdtemp(prefix="history-")
    nodes = [Node(port, folder) for port in free_ports(6)]
    # A machine that is busy has no node taken for dead until one is to be.
    more = ["--cluster-node-timeout", "30000", *([] if "redis-server" in BASALT else ["--metrics-port", "0"])]
    for node in nodes:
        node.start(BASALT, *more)
    create(nodes)
    client = subprocess.Popen([*sys.argv[2:], *(str(node.port) for node in nodes)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    begun = time.time()

    def say(what):
        print(f"{time.time() - begun:5.1f} s  {what}", flush=True)

    time.sleep(1)
    first, second = nodes[0].client.cluster("myid"), nodes[1].client.cluster("myid")
    for source, target in ((first, second), (second, first)):
        # It refuses while nodes do not yet agree on what moved before.
        check = ["redis-cli", "--cluster", "check", f"127.0.0.1:{nodes[0].port}"]
        until(lambda: not subprocess.run(check, stdout=subprocess.DEVNULL).returncode, "all nodes agree")
        moved = subprocess.run(["redis-cli", "--cluster", "reshard", f"127.0.0.1:{nodes[0].port}", "--cluster-from",
                                source, "--cluster-to", target, "--cluster-slots", "60", "--cluster-yes"],
                               stdout=subprocess.PIPE, text=True)
        if moved.returncode:
            raise SystemExit(moved.stdout[-2000:])
        say("60 slots have moved")
    for replica in [node for node in nodes if not node.leads()]:
        primary = next(node for node in nodes if node.port == int(replica.info()["master_port"]))
        replica.take_the_place_of(primary)
        say(f"{replica.port} leads in the place of {primary.port}")
    for node in nodes:
        node.client.config_set("cluster-node-timeout", 3000)
    print("mark", file=client.stdin, flush=True)
    time.sleep(2)
    victim = next(node for node in nodes if node.leads())
    heir = next(node for node in nodes if not node.leads() and int(node.info()["master_port"]) == victim.port)
    victim.kill()
    say(f"{victim.port} is killed")
    until(lambda: heir.leads() and heir.is_up(), f"{heir.port} leads")
    say(f"{heir.port} leads in its place")
    time.sleep(2)
    saw = json.loads(client.communicate()[0])
    for node in nodes:
        if node is not victim:
            node.stop()
    odd = {error: count for error, count in saw["errors"].items() if not ERRORS.search(error)}
    print(f"{saw['writes']} writes acknowledged and read back, errors {saw['errors']}, {saw['lost']} lost by the kill, "
          f"{len(saw['wrong'])} wrong")
    if saw["wrong"] or odd or client.returncode or not saw["writes"]:
        raise SystemExit("\n".join([*saw["wrong"][:20], *odd]))


main()
