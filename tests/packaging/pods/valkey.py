"""The pods of Valkey's official chart, valkey-helm 0.11.0, and of its official operator, valkey-operator 0.5.0."""
import contextlib, hashlib

from world import Client, World, certificates, check, info, wait_until

DOMAIN = "demo-valkey-headless.prod.svc.cluster.local"


def helm_init(tls):
    """An init script with the steps and the tools of the chart's; users with a secret, a password in the values, and
    lines of their own; replicas of the first pod."""
    listens = ["port 6379"]
    if tls:
        listens = ["tls-cert-file /tls/server.crt", "tls-key-file /tls/server.key", "tls-ca-cert-file /tls/ca.crt",
                   "tls-auth-clients no", "port 0", "tls-port 6379"]
    common = "".join(f"    echo '{line}'\n" for line in
                     [*listens, "protected-mode no", "bind * -::*", "dir /data", "aclfile /etc/valkey/users.acl"])
    secure = "echo 'tls-replication yes'" if tls else ":"
    return f"""\
#!/bin/sh
set -eu
conf=${{VALKEY_CONFIG_PATH:-/data/conf/valkey.conf}}
users=/etc/valkey/users.acl
note() {{ echo "$(date) $1" | tee -a /data/init.log >&2; }}
secret() {{
  for file in "/valkey-users-secret/$1" "/valkey-auth-secret/$1-password"; do
    if [ -f "$file" ]; then cat "$file"; return; fi
  done
  return 1
}}
[ "${{KEEP_OLD_LOGS:-false}}" = true ] || rm -f /data/init.log
note "the configuration of $HOSTNAME"
mkdir -p /data/conf
rm -f "$conf"
{{
{common}}} >>"$conf"
mkdir -p /etc/valkey
if [ -f "$users" ]; then chmod 0600 "$users"; rm -f "$users"; fi
touch "$users"
chmod 0600 "$users"
while read -r name rules; do
  hash=$(echo -n "$(secret "$name")" | sha256sum | cut -f 1 -d " ")
  echo "user $name on #$hash $rules" >>"$users"
done <<'END'
default ~* &* +@all
reader ~* -@all +@read +ping +info
copier -@all +psync +replconf +ping
END
cat /valkey-auth-secret/aclConfig >>"$users"
chmod 0400 "$users"
if [ "${{POD_INDEX:-0}}" != 0 ]; then
  {{
    echo ""
    echo "# Replica Configuration"
    echo "replicaof demo-valkey-0.{DOMAIN} 6379"
    echo "replica-announce-ip demo-valkey-$POD_INDEX.{DOMAIN}"
    echo "repl-diskless-sync yes"
    echo "repl-diskless-sync-delay 0"
    echo "masterauth $(secret copier)"
    echo "masteruser copier"
    {secure}
  }} >>"$conf"
fi
{{
  echo "min-replicas-to-write 1"
  echo "min-replicas-max-lag 10"
}} >>"$conf"
if [ -f /usr/local/etc/valkey/valkey.conf ]; then cat /usr/local/etc/valkey/valkey.conf >>"$conf"; fi
"""


def valkey_helm(image, tls):
    with World(image, "helm") as world:
        scripts = world.volume({"init.sh": helm_init(tls)})
        values = world.volume({"valkey.conf": "maxmemory 64mb\nmaxmemory-policy allkeys-lru\nrepl-diskless-sync-delay 0\n"})
        users = world.volume({"default": "root-word", "copier": "copies"})
        inline = world.volume({"reader-password": "reads", "aclConfig": "user more on >extra ~more:* +@all\n"})
        mounted = {"/scripts": scripts, "/usr/local/etc/valkey": values, "/valkey-users-secret": users,
                   "/valkey-auth-secret": inline}
        probe = ["valkey-cli"]
        if tls:
            mounted["/tls"] = world.volume(certificates(world.place / "certificates"))
            probe += ["--cacert", "/tls/ca.crt", "--tls"]
        probe.append("ping")

        def start(pod):
            pod.does("/scripts/init.sh")
            pod.start("valkey-server", "/data/conf/valkey.conf")
            pod.await_ready(*probe)

        def ask(pod, *words):
            return pod.does(*probe[:-1], "--no-auth-warning", *words, **{image.password: "root-word"}).strip()

        pods = []
        for index in range(3):
            volumes = {**mounted, "/data": world.volume(), "/etc/valkey": world.volume()}
            environment = {"POD_INDEX": index, "VALKEY_LOG_LEVEL": "notice"}
            pods.append(world.pod(f"demo-valkey-{index}", volumes=volumes, environment=environment, domain=DOMAIN).at(index + 2))
        world.name_hosts()
        for pod in pods:
            start(pod)
        first, *others = pods
        for pod in others:
            wait_until(lambda: "master_link_status:up" in ask(pod, "info", "replication"), f"{pod.name} follows: {ask(pod, 'info')[:500]}")
        wait_until(lambda: ask(first, "set", "key", "value") == "OK", "two replicas are good enough for a write")
        for pod in others:
            wait_until(lambda: ask(pod, "get", "key") == "value", f"{pod.name} has the key")
            check("READONLY" in ask(pod, "set", "key", "other"), f"{pod.name} is a replica")
        listed = ask(first, "info", "replication")
        check(f"demo-valkey-1.{DOMAIN}" in listed, f"replicas announce their names: {listed}")
        check(ask(first, "config", "get", "maxmemory").endswith(str(64 << 20)), "the file of the values is read")
        reads = first.does(*probe[:-1], "--no-auth-warning", "--user", "reader", "set", "key", "1",
                           **{image.password: "reads"})
        check("NOPERM" in reads, f"the user reader reads only: {reads}")
        check(ask(first, "acl", "getuser", "more").count("more:*") == 1, "lines of the values are users too")
        # Without a password a probe gets an error, and the chart takes it for a server that lives.
        check("NOAUTH" in first.does(*probe), "a server with users wants a password")
        # The exporter beside it listens here, and finds the port free.
        with contextlib.suppress(ConnectionRefusedError):
            Client(first.ip, 9121)
            check(False, "the server leaves 9121 to the exporter of the pod")
        # A pod that is replaced keeps its volume, and its init script runs over the files of the last one.
        for pod, number in [(others[0], 20), (first, 21)]:
            pod.stop()
            pod.at(number)
            world.name_hosts()
            start(pod)
            wait_until(lambda: ask(pod, "get", "key") == "value", f"{pod.name} has the key after its restart")
        for pod in others:
            wait_until(lambda: "master_link_status:up" in ask(pod, "info", "replication"), f"{pod.name} follows again")
        wait_until(lambda: ask(first, "set", "key", "later") == "OK", "writes are taken again")
        check("is_read_only" not in first.log() and "Read-only file system" not in first.log(), first.log())


PASSWORDS = {"_operator": "operates", "_exporter": "exports", "_replication": "replicates", "app": "applies", "default": "guards"}
RIGHTS = {
    "_operator": "+@connection +cluster|myid +cluster|myshardid +cluster|info +cluster|nodes +cluster|meet "
                 "+cluster|addslotsrange +cluster|replicate +cluster|forget +cluster|failover +cluster|getslotmigrations "
                 "+cluster|migrateslots +cluster|set-config-epoch +config|set +config|get +acl|load +acl|getuser +acl|users "
                 "+info +role",
    "_exporter": "-@all +@connection +memory -readonly +strlen +config|get +xinfo +pfcount -quit +zcard +type +xlen "
                 "-readwrite -command +client -wait +scard +llen +hlen +get +eval +slowlog +cluster|info +cluster|slots "
                 "+cluster|nodes -hello -echo +info +latency +scan -reset -auth -asking",
    "_replication": "-@all +psync +sync +replconf +ping +cluster|syncslots +select +@write ~* -flushall -flushdb -swapdb",
    "app": "~* resetchannels &news* +@all -@dangerous",
}


def operator_users(rights):
    def sha(text):
        return hashlib.sha256(text.encode()).hexdigest()
    text = "".join(f"user {name} on #{sha(PASSWORDS[name])} {rules}\n" for name, rules in rights.items())
    # A user that cannot log in says by its hash which version of the file is loaded.
    return text + f"user _operator_acl_revision off resetchannels -@all #{sha(text)}\n", sha(text)


# The startup and liveness probe; the readiness probe accepts only PONG.
OPERATOR_PROBE = """\
#!/bin/sh
set -e
limit=${1:-4}
ask() {
  valkey-cli -h localhost -p "${2:-6379}" ${VALKEY_TLS_ARGS:-} ${VALKEYCLI_AUTH:+--user $VALKEY_USER} PING &
  child=$!
  count=0
  while [ $count -lt $((limit * 10)) ]; do
    if ! kill -0 $child 2>/dev/null; then wait $child; return $?; fi
    sleep 0.1
    count=$((count + 1))
  done
  kill -TERM $child
  return 124
}
answer=$(ask)
word=$(echo "$answer" | head -n1 | awk '{print $1;}')
case $word in PONG | LOADING | MASTERDOWN) ;; *) echo "$answer" >&2; exit 1 ;; esac
"""
OPERATOR_CONF = """\
    # User Config
    repl-diskless-sync-delay 0
    maxmemory 64mb
    maxmemory-policy allkeys-lfu
    # Base Config
    aclfile /config/users/users.acl
    cluster-allow-replica-migration no
    cluster-config-file /data/nodes.conf
    cluster-enabled yes
    cluster-node-timeout 2000
    cluster-replica-validity-factor 0
    dir /data
    protected-mode no
    shutdown-on-sigterm failover
"""


class Operator:
    """The cluster of two shards, each with a replica, and what the operator does with it."""

    def __init__(self, world):
        self.world = world
        users, _ = operator_users(RIGHTS)
        self.conf = world.volume({"valkey.conf": OPERATOR_CONF, "users/.keep": ""})
        self.users = world.volume({"users.acl": users})
        self.scripts = world.volume({"liveness-check.sh": OPERATOR_PROBE})
        self.last = 1

    def create(self, name, data=None):
        self.last += 1
        volumes = {"/scripts": self.scripts, "/config": self.conf, "/config/users": self.users, "/data": data or self.world.volume()}
        environment = {"VALKEY_USER": "_operator", "VALKEYCLI_AUTH": PASSWORDS["_operator"]}
        pod = self.world.pod(name, volumes=volumes, environment=environment).at(self.last)
        return self.start(pod)

    def start(self, pod):
        pod.start("valkey-server", "/config/valkey.conf", "--cluster-announce-ip", pod.ip,
                  "--primaryuser", "_replication", "--primaryauth", PASSWORDS["_replication"])
        pod.await_ready("/bin/sh", "-c", "/scripts/liveness-check.sh")
        return pod

    def move(self, pod):
        """The pod comes back with its volume and a new address."""
        self.last += 1
        return self.start(pod.at(self.last))

    def login(self, pod):
        client = pod.client("HELLO", 3, "AUTH", "_operator", PASSWORDS["_operator"])
        client.call("CLIENT", "TRACKING", "ON", "OPTIN")
        client.call("CLIENT", "SETINFO", "LIB-NAME", "valkey")
        return client

    def nodes(self, pod):
        lines = self.login(pod).call("CLUSTER", "NODES").splitlines()
        return {words[0]: words for words in map(str.split, lines)}

    def id(self, pod):
        return self.login(pod).call("CLUSTER", "MYID")

    def state(self, pod):
        text = self.login(pod).call("CLUSTER", "INFO")
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def introduce(self, pod, target, epoch):
        self.login(pod).call("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        self.login(pod).call("CLUSTER", "MEET", target.ip, 6379)
        self.login(target).call("CLUSTER", "MEET", pod.ip, 6379)

    def replicate(self, pod, primary):
        id = self.id(primary)

        def is_known():
            try:
                return self.login(pod).call("CLUSTER", "REPLICATE", id) == "OK"
            except RuntimeError as error:
                # The operator comes back later for these words, and for no others.
                check("Unknown node" in str(error), f"an unknown node is called so: {error}")
        wait_until(is_known, f"{pod.name} knows its primary")
        wait_until(lambda: info(self.login(pod), "master_link_status") == "up", f"{pod.name} follows: {pod.log()}")

    def is_primary(self, pod):
        return info(self.login(pod), "role") == "master"

    def await_agreement(self, pods, count):
        def agrees(pod):
            state = self.state(pod)
            return state["cluster_state"] == "ok" and state["cluster_known_nodes"] == str(count) and \
                all(words[7] == "connected" and "fail" not in words[2] for words in self.nodes(pod).values())
        for pod in pods:
            wait_until(lambda: agrees(pod), f"{pod.name} is content: {self.state(pod)} {self.nodes(pod)}")


def valkey_operator(image):
    with World(image, "operator") as world:
        operator = Operator(world)
        pods = {name: operator.create(name) for name in ["valkey-demo-0-0", "valkey-demo-0-1", "valkey-demo-1-0", "valkey-demo-1-1"]}
        a, a2, b, b2 = pods.values()
        for epoch, pod in enumerate([a2, b, b2], 2):
            operator.introduce(pod, a, epoch)
        for pod in pods.values():
            wait_until(lambda: operator.state(pod)["cluster_known_nodes"] == "4", f"{pod.name} knows all")
        for pod, start, end in [(a, 0, 8191), (b, 8192, 16383)]:
            check(operator.login(pod).call("CLUSTER", "ADDSLOTSRANGE", start, end) == "OK", "slots are taken")
        operator.replicate(a2, a)
        operator.replicate(b2, b)
        operator.await_agreement(pods.values(), 4)
        check(len(operator.login(a).call("CLUSTER", "MYSHARDID")) == 40, "a shard has an ID")
        app = ["valkey-cli", "-c", "--no-auth-warning", "--user", "app", "-a", PASSWORDS["app"]]
        for number in range(20):
            a.does(*app, "set", f"key{number}", number)

        def all_there(pod):
            return all(pod.execute(*app, "get", f"key{number}")[1].strip() == str(number) for number in range(20))

        # A configuration that is changed without a restart, and users likewise.
        for pod in pods.values():
            operator.login(pod).call("CONFIG", "SET", "maxmemory", "65mb", "maxmemory-policy", "allkeys-lru", "maxclients", 5000)
        check(operator.login(b2).call("CONFIG", "GET", "maxmemory") == {"maxmemory": str(65 << 20)}, "it is set")
        rights = {**RIGHTS, "app": "~* resetchannels &* +@all"}
        if image.password == "VALKEYCLI_AUTH":
            rights["default"] = "~* &* +@all"
        changed, revision = operator_users(rights)
        operator.users.write("users.acl", changed)
        for pod in pods.values():
            client = operator.login(pod)
            check(client.call("ACL", "LOAD") == "OK", "users are loaded again")
            check(sorted(client.call("ACL", "USERS")) == sorted({*RIGHTS, "_operator_acl_revision", "default"}), "they are all")
            check(client.call("ACL", "GETUSER", "_operator_acl_revision")["passwords"] == [revision], "of this version")
            # From now on a probe without the password fails, in the image.
            pod.await_ready("/bin/sh", "-c", "/scripts/liveness-check.sh")
        if image.password == "VALKEYCLI_AUTH":
            check("NOAUTH" in a.does("valkey-cli", "ping", VALKEYCLI_AUTH=""), "the default user has a password")

        # A third shard takes slots of the others.
        c = pods["valkey-demo-2-0"] = operator.create("valkey-demo-2-0")
        operator.introduce(c, a, int(operator.state(a)["cluster_current_epoch"]) + 1)
        operator.await_agreement(pods.values(), 5)
        for pod, first, last in [(a, 0, 2730), (b, 8192, 10922)]:
            words = ["SLOTSRANGE", first, last - 1, "NODE", operator.id(c), "SLOTSRANGE", last, last, "NODE", operator.id(c)]
            check(operator.login(pod).call("CLUSTER", "MIGRATESLOTS", *words) == "OK", "slots move")
            wait_until(lambda: all(job["state"] == "success" for job in
                                   operator.login(pod).call("CLUSTER", "GETSLOTMIGRATIONS")), "they have moved")
        wait_until(lambda: operator.nodes(a)[operator.id(c)][8:] == ["0-2730", "8192-10922"], "all see it")
        wait_until(lambda: all_there(a), "and the keys with them")

        # Before an upgrade the operator asks the replica to take over; the old primary is then a replica.
        check(operator.login(a2).call("CLUSTER", "FAILOVER") == "OK", "a failover begins")
        wait_until(lambda: operator.is_primary(a2) and not operator.is_primary(a), f"the replica leads: {a2.log()}")
        wait_until(lambda: info(operator.login(a), "master_link_status") == "up", f"the old primary follows: {a.log()}")
        # A node is drained: SIGTERM hands over by itself, and the pod comes back elsewhere with its volume.
        before = operator.id(a2)
        a2.stop()
        check(operator.is_primary(a), f"the replica led before the primary ended: {a2.log()}")
        operator.move(a2)
        check(operator.id(a2) == before, "a node keeps its ID with its volume")
        operator.await_agreement(pods.values(), 5)
        wait_until(lambda: operator.nodes(b)[before][1].startswith(a2.ip), "the others learn the new address")
        wait_until(lambda: info(operator.login(a2), "master_link_status") == "up", f"it follows: {a2.log()}")

        # A volume is lost: the operator forgets the old node, and a new one takes its place.
        b2.kill()
        lost = next(words[0] for words in operator.nodes(a).values() if words[1].startswith(b2.ip + ":"))
        fresh = pods["valkey-demo-1-1"] = operator.create("valkey-demo-1-1b")
        operator.introduce(fresh, a, int(operator.state(a)["cluster_current_epoch"]) + 1)
        wait_until(lambda: "fail" in operator.nodes(a)[lost][2].split(","), "the lost node is known to have failed")
        for pod in pods.values():
            with contextlib.suppress(RuntimeError):
                operator.login(pod).call("CLUSTER", "FORGET", lost)
        operator.replicate(fresh, b)
        operator.await_agreement(pods.values(), 5)
        check(all_there(a2), "nothing is lost")

        # Two of three primaries are gone for good, so no replica can be elected.
        lost = [operator.id(pod) for pod in (b, c)]
        b.kill()
        c.kill()
        wait_until(lambda: "fail" in operator.nodes(fresh)[lost[0]][2], "the replica sees it")
        check(operator.login(fresh).call("CLUSTER", "FAILOVER", "TAKEOVER") == "OK", "a replica leads without votes")
        wait_until(lambda: operator.is_primary(fresh), f"it leads: {fresh.log()}")
        check(operator.nodes(fresh)[operator.id(fresh)][8:] == ["10923-16383"], "it has the slots of its primary")
