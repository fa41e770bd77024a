"""The pods of OT's redis-operator 0.26.0 and of Spotahome's 1.3.0."""
import shutil, subprocess

from world import Client, World, check, info, package, wait_until

# A password from a secret often ends with a new line, which goes here before a client reads it.
TRIMMED = 'if [ -n "${REDISCLI_AUTH:-}" ]; then REDISCLI_AUTH="$(printf %s "$REDISCLI_AUTH" | tr -d \'\\r\\n\')"; export REDISCLI_AUTH; fi'
OT_PROBE = ["sh", "-ec", TRIMMED + '\nanswer="$(redis-cli -h $(hostname) -p ${REDIS_PORT} ping)"\n[ "$answer" = PONG ]']
# Before a primary's pod stops, the replica with the most of the stream takes over.
OT_STOP = ["sh", "-c", TRIMMED + """
ask="redis-cli -h $(hostname) -p ${REDIS_PORT}"
[ "$($ask info replication | awk -F: '/role:master/ {print "yes"}')" = yes ] || exit 0
best=$($ask info replication | awk -F: '
  BEGIN { most = -1 }
  /slave[0-9]+:ip/ { split($2, part, ","); split(part[1], ip, "="); split(part[4], offset, "=")
    if (offset[2] + 0 > most) { most = offset[2] + 0; best = ip[2] } }
  END { print best }')
[ -z "$best" ] || redis-cli -h "$best" -p ${REDIS_PORT} cluster failover
"""]


def ot_conf(name, ip):
    return f"""\
    bind 0.0.0.0 ::
    tcp-backlog 511
    timeout 0
    tcp-keepalive 60
    daemonize no
    supervised no
    pidfile /var/run/redis.pid
    masterauth word
    requirepass word
    protected-mode yes
    cluster-enabled yes
    cluster-node-timeout 5000
    cluster-require-full-coverage no
    cluster-migration-barrier 1
    cluster-config-file /node-conf/nodes.conf
    cluster-announce-ip {ip}
    cluster-announce-hostname {name}
    save 900 1
    save 300 10
    save 60 10000
    Appendonly yes
    Appendfilename "Appendonly.aof"
    dir /data
    port 6379
    maxmemory 67108864
    include /etc/redis/external.conf.d/redis-additional.conf
"""


def ot_operator(image):
    with World(image, "ot") as world:
        more = world.volume({"redis-additional.conf": "maxmemory-policy noeviction\nrepl-diskless-sync-delay 0\n"})
        pods, last = {}, 1

        def create(name):
            nonlocal last
            last += 1
            conf = world.volume({"redis.conf": ot_conf(name, f"10.97.1.{last}"), "external.conf.d/.keep": ""})
            volumes = {"/etc/redis": conf, "/etc/redis/external.conf.d": more, "/data": world.volume(), "/node-conf": world.volume()}
            # The password with the new line of its secret.
            environment = {"REDIS_PORT": 6379, "REDISCLI_AUTH": "word\n", "SERVER_MODE": "cluster"}
            pods[name] = world.pod(name, volumes=volumes, environment=environment, domain="demo-headless").at(last)
            world.name_hosts()
            pods[name].start("redis-server", "/etc/redis/redis.conf")
            pods[name].await_ready(*OT_PROBE)
            return pods[name]

        def cli(pod, *words):
            return pod.does("sh", "-c", TRIMMED + '; exec "$@"', "sh", "redis-cli", *words)

        def login(pod):
            return pod.client("AUTH", "word")

        leaders = [create(f"demo-leader-{number}") for number in range(3)]
        first = leaders[0]
        for pod in leaders:
            check(login(pod).call("CLUSTER", "RESET") == "OK", "a node can be reset before its cluster is made")
        made = cli(first, "--cluster", "create", *[f"{pod.ip}:6379" for pod in leaders], "--cluster-yes")
        check("All 16384 slots covered" in made, f"redis-cli makes the cluster: {made}")
        followers = [create(f"demo-follower-{number}") for number in range(3)]
        for leader, follower in zip(leaders, followers):
            added = cli(first, "--cluster", "add-node", f"{follower.ip}:6379", f"{leader.ip}:6379", "--cluster-slave")
            check("New node added correctly" in added, f"redis-cli adds a replica: {added}")
            wait_until(lambda: info(login(follower), "master_link_status") == "up", f"{follower.name} follows")

        def is_good():
            status, output = first.execute("sh", "-c", TRIMMED + '; exec "$@"', "sh", "redis-cli", "--cluster", "check", "127.0.0.1:6379")
            return status == 0 and "[ERR]" not in output and "[WARNING]" not in output
        wait_until(is_good, "redis-cli finds the cluster good")
        for number in range(40):
            cli(first, "-c", "set", f"key{number}", "v")

        # A fourth shard comes, and goes again.
        new = create("demo-leader-3")
        cli(first, "--cluster", "add-node", f"{new.ip}:6379", f"{first.ip}:6379")
        for pod in pods.values():
            wait_until(lambda: "handshake" not in (said := login(pod).call("CLUSTER", "NODES")) and len(said.splitlines()) == 7,
                       f"{pod.name} knows the new node")
        wait_until(is_good, "the new node is known")
        cli(first, "--cluster", "fix", f"{first.ip}:6379", "--cluster-yes")
        # The rebalance is only computed here: tests/clients/cluster_tools.py moves a quarter of the slots.
        plan = cli(first, "--cluster", "rebalance", f"{leaders[1].ip}:6379", "--cluster-use-empty-masters", "--cluster-simulate")
        check(plan.count("Moving") == 3, f"each primary is to give slots: {plan}")
        id, own = login(new).call("CLUSTER", "MYID"), login(first).call("CLUSTER", "MYID")

        def reshard(source, target):
            cli(first, "--cluster", "reshard", f"{first.ip}:6379", "--cluster-from", source, "--cluster-to", target,
                "--cluster-slots", 40, "--cluster-yes")
            slots = login(first).call("CLUSTER", "SLOTS")
            return sum(one[1] - one[0] + 1 for one in slots if one[2][2] == target)
        check(reshard(own, id) == 40, "the new primary has slots")
        wait_until(is_good, "slots have moved")
        reshard(id, own)
        wait_until(is_good, "slots have moved back")
        cli(first, "--cluster", "del-node", f"{first.ip}:6379", id)
        wait_until(lambda: id not in login(first).call("CLUSTER", "NODES"), "the node is gone")
        wait_until(is_good, "the cluster is good without it")
        check(cli(first, "-c", "get", "key7").strip() == "v", "no key is lost")

        # preStop: a replica takes over before the primary's pod ends; then the pod is back with another address.
        status, said = first.execute(*OT_STOP)
        check(status == 0 and "OK" in said, f"preStop asks for a failover: {said}")
        wait_until(lambda: info(login(first), "role") == "slave", f"the replica leads: {first.log()}")
        first.stop()
        last += 1
        first.at(last)
        world.name_hosts()
        # As the operator's first container does it in the file of the node.
        nodes = next(path for path in [world.place] for path in path.glob("volume*/nodes.conf") if f"{first.name}" in path.read_text()
                     and any("myself" in line and first.name in line for line in path.read_text().splitlines()))
        old = next(line for line in nodes.read_text().splitlines() if "myself" in line)
        address = old.split()[1].split(":")[0]
        nodes.write_text(nodes.read_text().replace(f" {address}:", f" {first.ip}:"))
        conf = next(path for path in world.place.glob("volume*/redis.conf") if f"hostname {first.name}\n" in path.read_text())
        conf.write_text(conf.read_text().replace(f"announce-ip {address}", f"announce-ip {first.ip}"))
        first.start("redis-server", "/etc/redis/redis.conf")
        first.await_ready(*OT_PROBE)
        wait_until(is_good, f"the cluster is good again: {first.log()}")
        wait_until(lambda: info(login(first), "master_link_status") == "up", f"the old primary follows: {first.log()}")
        check(login(leaders[1]).call("CLUSTER", "MEET", first.ip, 6379) == "OK", "the operator repairs by MEET")


SPOTAHOME_CONF = """\
    slaveof 127.0.0.1 6379
    port 6379
    tcp-keepalive 60
    save 900 1
    save 300 10
    user pinger -@all +ping on >pingpass
    rename-command "KEYS" "LIST-OF-KEYS"
    requirepass word
    masterauth word
"""
SPOTAHOME_READY = """\
[ -z "${REDIS_PASSWORD}" ] || export REDISCLI_AUTH=${REDIS_PASSWORD}
ask="redis-cli -p 6379 info replication"
field() { echo "$ask | grep $1 | tr -d \\"\\\\r\\" | tr -d \\"\\\\n\\"" | xargs -0 sh -c; }
case $(field ^role) in
role:master) exit 0 ;;
role:slave) [ -z "$(field master_sync_in_progress:1)" ] && [ -z "$(field master_host:127.0.0.1)" ] ;;
*) exit 1 ;;
esac
"""
SPOTAHOME_STOP = """\
master=$(redis-cli -h ${RFS_SERVICE_HOST} -p 26379 --csv SENTINEL get-master-addr-by-name mymaster | tr ',' ' ' | tr -d '\\"' | cut -d' ' -f1)
if [ "$master" = "$(hostname -i)" ]; then
  redis-cli -h ${RFS_SERVICE_HOST} -p 26379 SENTINEL failover mymaster
fi
[ -z "${REDIS_PASSWORD}" ] || export REDISCLI_AUTH=${REDIS_PASSWORD}
redis-cli -p 6379 save
"""


def spotahome(image):
    with World(image, "spotahome") as world:
        conf = world.volume({"redis.conf": SPOTAHOME_CONF})
        ready = world.volume({"ready.sh": SPOTAHOME_READY})
        shutdown = world.volume({"shutdown.sh": SPOTAHOME_STOP})
        pods = []
        live = ["sh", "-c", "redis-cli -h $(hostname) -p 6379 --user pinger --pass pingpass --no-auth-warning ping | grep PONG"]
        is_ready = ["/bin/sh", "/redis-readiness/ready.sh"]
        for number in range(3):
            volumes = {"/redis": conf, "/redis-readiness": ready, "/redis-shutdown": shutdown, "/data": world.volume()}
            environment = {"REDIS_PASSWORD": "word", "RFS_SERVICE_HOST": "10.97.0.1"}
            pods.append(world.pod(f"rfr-demo-{number}", volumes=volumes, environment=environment).at(number + 2))
        world.name_hosts()
        for pod in pods:
            pod.start("redis-server", "/redis/redis.conf")
            pod.await_ready(*live)
            # It follows itself until the operator says whom to follow.
            check(pod.execute(*is_ready)[0] != 0, f"{pod.name} is not ready before the operator came")
        first, *others = pods

        def login(pod):
            return pod.client("AUTH", "word")

        for pod in pods:
            login(pod).call("CONFIG", "SET", "repl-diskless-sync-delay", 0)
        check(login(first).call("SLAVEOF", "NO", "ONE") == "OK", "the operator makes a primary")
        for pod in others:
            check(login(pod).call("SLAVEOF", first.ip, 6379) == "OK", "and replicas")
        for pod in pods:
            wait_until(lambda: pod.execute(*is_ready)[0] == 0, f"{pod.name} is ready: {pod.execute(*is_ready)} {pod.log()}")
            for setting in [("tcp-keepalive", "30"), ("save", "600 1 120 10"), ("client-output-buffer-limit", "slave 512mb 128mb 60")]:
                check(login(pod).call("CONFIG", "SET", *setting) == "OK", f"the operator sets {setting}")
        login(first).call("SET", "key", "value")
        wait_until(lambda: login(others[1]).call("GET", "key") == "value", "replicas have it")
        wait_until(lambda: info(login(others[1]), "master_link_status") == "up", "the operator sees the link")
        check(login(first).call("LIST-OF-KEYS", "*") == ["key"], "a command has the name that the file gives it")
        if shutil.which("redis-sentinel"):
            spotahome_sentinel(world, first, others, login)
        else:
            package.skip("there is no redis-sentinel for Spotahome's preStop")


def spotahome_sentinel(world, first, others, login):
    """Redis's own Sentinel, where the pods' service leads; preStop of the primary asks it for a failover."""
    path = world.place / "sentinel.conf"
    path.write_text(f"sentinel monitor mymaster {first.ip} 6379 1\nsentinel auth-pass mymaster word\nbind 10.97.0.1\n"
                    "port 26379\nprotected-mode no\nsentinel down-after-milliseconds mymaster 1000\n"
                    "sentinel failover-timeout mymaster 3000\nsentinel parallel-syncs mymaster 2\n")
    with open(world.place / "sentinel.log", "w") as log:
        sentinel = subprocess.Popen(["redis-sentinel", str(path)], stdout=log, stderr=log)
    try:
        wait_until(lambda: package.ask(("10.97.0.1", 26379), "PING") == "+PONG\r\n", "Sentinel answers")
        client = Client("10.97.0.1", 26379)

        def knows(replica):
            facts = dict(zip(replica[::2], replica[1::2]))
            return facts["flags"] == "slave" and facts["master-link-status"] == "ok"
        wait_until(lambda: [knows(one) for one in client.call("SENTINEL", "replicas", "mymaster")] == [True, True], "Sentinel knows both")
        first.does("/bin/sh", "/redis-shutdown/shutdown.sh")
        wait_until(lambda: any(info(login(pod), "role") == "master" for pod in others), "a replica is promoted")
        wait_until(lambda: info(login(first), "role") == "slave", "the old primary follows")
        first.stop()
    finally:
        sentinel.kill()
        sentinel.wait()
