"""A basalt, a replica of it, a cluster of two and a Prometheus that scrapes all, and the queries of the dashboards.

For `.ci/prometheus`, which asks every query, and `picture`, which draws the answers. The standard library is enough."""
import json, pathlib, re, shutil, socket, subprocess, tempfile, time, urllib.error, urllib.parse, urllib.request

HERE = pathlib.Path(__file__).parent


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_until(true, what):
    for _ in range(400):
        if true():
            return
        time.sleep(0.05)
    raise SystemExit(f"waited for nothing: {what}")


def fetch(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


def answers(url):
    try:
        return fetch(url) is not None
    except OSError:
        return False


class Watched:
    """Servers on free ports in a folder of their own; leaving the `with` ends them and removes it."""

    def __init__(self, binary, *options):
        self.binary, self.options = str(pathlib.Path(binary).resolve()), options
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="watched-"))
        self.processes, self.ports, self.metrics = {}, {}, {}

    def __enter__(self):
        try:
            self.start_server("primary", "--appendonly", "yes", *self.tls(), *self.options)
            self.cli("config", "set", "repl-diskless-sync-delay", "0")
            self.start_replica("replica")
            self.start_cluster("node1", "node2")
            self.start_prometheus()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()
        shutil.rmtree(self.dir)

    def start(self, name, *command):
        with open(self.dir / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                    cwd=self.dir)

    def start_server(self, name, *options):
        port, metrics = self.ports[name], self.metrics[name] = free_port(), free_port()
        (self.dir / f"{name}.d").mkdir()
        self.start(name, self.binary, "--port", str(port), "--metrics-port", str(metrics), "--bind", "127.0.0.1",
                   "--save", "", "--dir", str(self.dir / f"{name}.d"), *options)
        wait_until(lambda: answers(f"http://127.0.0.1:{metrics}/ready"), f"{name} is ready")

    def tls(self):
        """Options of a TLS port with a certificate made for it, whose figures dashboards show, too."""
        key, certificate = str(self.dir / "server.key"), str(self.dir / "server.crt")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", key, "-out", certificate, "-days", "30", "-subj", "/CN=localhost"],
                       stderr=subprocess.DEVNULL, check=True)
        return ["--tls-port", str(free_port()), "--tls-cert-file", certificate, "--tls-key-file", key,
                "--tls-ca-cert-file", certificate]

    def start_replica(self, name):
        self.start_server(name, "--replicaof", f"127.0.0.1 {self.ports['primary']}")
        wait_until(lambda: "master_link_status:up" in self.cli("info", "replication", server=name), f"link of {name}")

    def start_cluster(self, *names):
        buses = {name: free_port() for name in names}
        for name, bus in buses.items():
            self.start_server(name, "--cluster-enabled", "yes", "--cluster-port", str(bus))
        first, others = names[0], names[1:]
        self.cli("cluster", "addslotsrange", "0", "16383", server=first)
        for name in others:
            self.cli("cluster", "meet", "127.0.0.1", str(self.ports[first]), str(buses[first]), server=name)
        for name in names:
            wait_until(lambda: "cluster_state:ok" in self.cli("cluster", "info", server=name), f"cluster of {name}")

    def start_prometheus(self):
        targets = "".join(f'      - {{targets: ["127.0.0.1:{port}"], labels: {{instance: {name}}}}}\n'
                          for name, port in self.metrics.items())
        config = self.dir / "prometheus.yml"
        config.write_text("global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
                          "scrape_configs:\n  - job_name: basalt\n    static_configs:\n" + targets)
        port = free_port()
        self.api = f"http://127.0.0.1:{port}/api/v1/"
        self.start("prometheus", "prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.dir}/data",
                   f"--web.listen-address=127.0.0.1:{port}")
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/-/ready"), "Prometheus is ready")
        # A target is first scraped some five seconds after the start.
        wait_until(lambda: len(self.ask("redis_up")) == len(self.metrics), "the first scrape of each server")

    def cli(self, *command, server="primary"):
        call = ["redis-cli", "-p", str(self.ports[server]), *command]
        return subprocess.run(call, capture_output=True, text=True).stdout

    def exposition(self, server):
        return fetch(f"http://127.0.0.1:{self.metrics[server]}/metrics")

    def ask(self, query, path="query", **more):
        """Prometheus's answer. A query that is wrong raises ValueError with its words."""
        try:
            url = self.api + path + "?" + urllib.parse.urlencode({"query": query, **more})
            return json.loads(fetch(url))["data"]["result"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error).get("error")) from None

    def ask_range(self, query, start, end, step=1):
        return self.ask(query, "query_range", start=start, end=end, step=step)


def dashboards():
    return {path: json.loads(path.read_text()) for path in sorted((HERE / "dashboards").glob("*.json"))}


def queries(panel):
    """Each target of a panel with its query, Grafana's variables filled in: every server, ten seconds for rates."""
    for target in panel.get("targets", []):
        query = target.get("expr")
        if query:
            query = re.sub(r"\$__rate_interval|\$__interval|\$\{__rate_interval\}|\$__range", "10s", query)
            yield target, re.sub(r'=~?\s*"\$\{?\w+(:\w+)?\}?"', '=~".*"', query)
