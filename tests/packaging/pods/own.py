"""The pods of our own chart, packaging/helm/basalt, as it renders in its three modes."""
import base64, contextlib, copy, json, os, re, socket, subprocess

from world import CI, Client, World, check, info, package, run, wait_until

class OwnChart:
    """The pods of our chart as it renders."""

    def __init__(self, world, mode, **values):
        values = json.dumps({"auth": {"password": "word"}, "podSecurityContext": {"runAsUser": 1000}, **values})
        objects = json.loads(run(CI / "helm", "render", mode, values))
        self.world, self.objects = world, {(one["kind"], one["metadata"]["name"]): one for one in objects}
        self.set = self.objects["StatefulSet", "demo-basalt"]["spec"]
        files = self.objects["ConfigMap", "demo-basalt"]["data"]
        self.config = world.volume({name: text for name, text in files.items()})
        self.domain = f"{self.set['serviceName']}.prod.svc.cluster.local"
        self.services = [name for kind, name in self.objects if kind == "Service"] + [self.domain]
        self.pods, self.sides, self.last = [], [], 1
        for index in range(self.set["replicas"]):
            self.create(index)
        self.name()

    def name(self):
        self.world.name_hosts(*self.services)

    def container(self, name):
        return next(one for one in self.set["template"]["spec"]["containers"] if one["name"] == name)

    def create(self, index):
        self.last += 1
        data = self.world.volume()
        volumes = {"/etc/basalt": self.config, "/data": data}
        self.pods.append(self.world.pod(f"demo-basalt-{index}", volumes=volumes, domain=self.domain).at(self.last))

    def environment(self, pod, container):
        """The variables of a container, which need the address of its pod."""
        found = {}
        for one in container["env"]:
            source = one.get("valueFrom", {})
            if "secretKeyRef" in source:
                secret = self.objects["Secret", source["secretKeyRef"]["name"]]["data"]
                value = base64.b64decode(secret[source["secretKeyRef"]["key"]]).decode()
            elif "fieldRef" in source:
                value = {"status.podIP": pod.ip, "metadata.name": pod.name}[source["fieldRef"]["fieldPath"]]
            else:
                value = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], one["value"])
            found[one["name"]] = value
        return found

    def start(self, pod):
        container = self.container("basalt")
        pod.environment.update(self.environment(pod, container))
        pod.start(*container["command"])

    def await_ready(self, pod):
        """By the readiness probe, which the node's own program sends."""
        def answers(path):
            with contextlib.suppress(OSError):
                with socket.create_connection((pod.ip, 9121), timeout=5) as probe:
                    probe.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                    return b" 200 " in probe.recv(4096).split(b"\r\n")[0]
        check(self.container("basalt")["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "metrics"}, "the probe is this")
        wait_until(lambda: answers("/ready") and answers("/health"), f"{pod.name} is ready: {pod.log()}")

    def stop(self, pod):
        pod.does(*self.container("basalt")["lifecycle"]["preStop"]["exec"]["command"])
        pod.stop()

    def login(self, pod):
        return pod.client("AUTH", "word")


def own_standalone(image):
    with World(image, "own") as world:
        chart = OwnChart(world, "standalone")
        (pod,) = chart.pods
        chart.start(pod)
        chart.await_ready(pod)
        chart.login(pod).call("SET", "key", "value")
        test = chart.objects["Pod", "demo-basalt-ping"]["spec"]["containers"][0]
        pod.does(*test["command"], *test["args"], REDISCLI_AUTH="word")
        check(pod.execute(*test["command"], *test["args"], REDISCLI_AUTH="wrong")[0] != 0, "the test notices a wrong password")
        chart.stop(pod)
        chart.start(pod)
        chart.await_ready(pod)
        check(chart.login(pod).call("GET", "key") == "value", "the data are on the volume")


def own_replication(image):
    """The first pod leads; when it goes, Sentinel has another one lead before its end, and it comes back as a replica."""
    # Valkey's own Sentinel is in valkey-tools under another name; in a cluster it is an image of its own.
    sentinel = image.dir / "usr/local/bin/valkey-sentinel"
    sentinel.unlink(missing_ok=True)
    sentinel.symlink_to("/usr/bin/valkey-check-rdb")
    with World(image, "own") as world:
        chart = OwnChart(world, "replication", config="repl-diskless-sync-delay 0")
        container, sides = chart.container("sentinel"), {}

        def start_side(pod):
            # A container of the pod, so with its network, and a folder of its volume as its own.
            side = sides[pod.name] = copy.copy(pod)
            side.root = world.place / f"side-{pod.name}"
            side.name, side.environment = pod.name, {**pod.environment, **chart.environment(pod, container)}
            side.root.mkdir()
            run("mount", "--rbind", pod.root, side.root)
            data = pod.root / "data/sentinel"
            data.mkdir(exist_ok=True)
            os.chown(data, 1000, 1000)
            run("mount", "--bind", data, side.root / "data")
            side.start(*container["command"])
            world.sides.append(side)
        world.sides = []
        for pod in chart.pods:
            chart.start(pod)
            start_side(pod)
            chart.await_ready(pod)
        first, *others = chart.pods

        def sentinel_says(*words):
            return Client(others[0].ip, 26379).call("SENTINEL", *words)
        wait_until(lambda: package.ask((others[0].ip, 26379), "PING") == "+PONG\r\n", f"Sentinel answers: {others[0].log()}")
        wait_until(lambda: len(sentinel_says("replicas", "basalt")) == 2 and len(sentinel_says("sentinels", "basalt")) == 2,
                   f"Sentinel knows all: {others[0].log()}")
        check(sentinel_says("get-master-addr-by-name", "basalt")[0] == first.full, "the first pod leads")
        for pod in others:
            wait_until(lambda: info(chart.login(pod), "master_link_status") == "up", f"{pod.name} follows")
        chart.login(first).call("SET", "key", "value")
        check(chart.login(first).call("WAIT", 2, 20000) == 2, "both have it")

        def is_known(replica):
            facts = dict(zip(replica[::2], replica[1::2]))
            return facts["master-link-status"] == "ok"
        wait_until(lambda: all(map(is_known, sentinel_says("replicas", "basalt"))), "Sentinel has asked the replicas")
        # `kubectl delete pod`: preStop, then SIGTERM, of both containers.
        sides[first.name].kill()
        chart.stop(first)
        check("Connecting to MASTER" in first.log(), f"the old primary followed before its end: {first.log()}")
        heir = sentinel_says("get-master-addr-by-name", "basalt")[0]
        check(heir in [pod.full for pod in others], f"another pod leads: {heir}")
        chart.last += 1
        first.at(chart.last)
        chart.name()
        chart.start(first)
        chart.await_ready(first)
        wait_until(lambda: info(chart.login(first), "master_link_status") == "up", f"it follows the new primary: {first.log()}")
        check(info(chart.login(first), "master_host") == heir, "whom Sentinel named")
        check(chart.login(first).call("GET", "key") == "value", "nothing is lost")
        for side in world.sides:
            if side.server.poll() is None:
                side.kill()


def own_cluster(image):
    """Six pods make a cluster by themselves, and keep it when all come back at once with new addresses."""
    if subprocess.run(["chroot", image.dir, "basalt", "help", "cluster-size"], capture_output=True).returncode != 0:
        return package.skip("this server has no cluster-size, so the pods of our chart's cluster are not run")
    with World(image, "own") as world:
        chart = OwnChart(world, "cluster", config="repl-diskless-sync-delay 0", cluster={"nodeTimeoutMilliseconds": 2000})
        for pod in chart.pods:
            chart.start(pod)
        for pod in chart.pods:
            chart.await_ready(pod)

        def serves(pod):
            state = chart.login(pod).call("CLUSTER", "INFO")
            return "cluster_state:ok" in state and "cluster_slots_ok:16384" in state and "cluster_known_nodes:6" in state

        def role(pod):
            return info(chart.login(pod), "role")
        for pod in chart.pods:
            wait_until(lambda: serves(pod), f"{pod.name} serves: {pod.log()}")
        wait_until(lambda: sorted(map(role, chart.pods)) == ["master"] * 3 + ["slave"] * 3, "three primaries and their replicas")
        for pod in [pod for pod in chart.pods if role(pod) == "slave"]:
            wait_until(lambda: info(chart.login(pod), "master_link_status") == "up", f"{pod.name} follows")
        cli = ["valkey-cli", "-c", "--no-auth-warning"]
        for number in range(20):
            chart.pods[0].does(*cli, "SET", f"key{number}", number)
        # A primary's pod is deleted: a replica leads before its end.
        primary = next(pod for pod in chart.pods if role(pod) == "master")
        chart.stop(primary)
        check([role(pod) for pod in chart.pods if pod is not primary].count("master") == 3, "a replica leads at once")
        for pod in chart.pods:
            if pod is not primary:
                pod.stop()
        for pod in chart.pods:
            chart.last += 1
            pod.at(chart.last)
        chart.name()
        for pod in chart.pods:
            chart.start(pod)
        for pod in chart.pods:
            chart.await_ready(pod)
        for pod in chart.pods:
            wait_until(lambda: serves(pod), f"{pod.name} serves again: {pod.log()}")
        for number in range(20):
            found = chart.pods[1].does(*cli, "GET", f"key{number}").strip()
            check(found == str(number), f"key{number} is {found}")
