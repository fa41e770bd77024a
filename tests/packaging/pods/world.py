"""Pods on this machine: each with a network, an address and a host name of its own, a read-only root with the contents of an
image, the user that its chart names, and the files that are mounted into it. For `.ci/pods`, in whose namespaces all is."""
import importlib.machinery, importlib.util, os, pathlib, shutil, socket, subprocess, tempfile, textwrap

CI = pathlib.Path(__file__).resolve().parents[3] / ".ci"
loader = importlib.machinery.SourceFileLoader("package", str(CI / "package"))
package = importlib.util.module_from_spec(importlib.util.spec_from_loader("package", loader))
loader.exec_module(package)
check, run, wait_until = package.check, package.run, package.wait_until

BASE = package.PLACE / "pods"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Client:
    """A connection of an operator; `call` returns what the server answers, an error as an exception."""

    def __init__(self, host, port=6379):
        self.socket = socket.create_connection((host, port), timeout=20)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        parts = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        answer = self.read()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def read(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind in b"+(":
            return rest.decode()
        if kind == b"-":
            return RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"_" or rest == b"-1":
            return None
        if kind in b"$=":
            text = self.file.read(int(rest) + 2)[:-2].decode()
            return text.removeprefix("txt:") if kind == b"=" else text
        if kind in b"*~>":
            return [self.read() for _ in range(int(rest))]
        if kind == b"%":
            return {self.read(): self.read() for _ in range(int(rest))}
        return rest.decode()


class Volume:
    """A folder that is mounted into pods."""

    def __init__(self, place, group, files=(), mode=0o2775):
        place.mkdir(parents=True)
        os.chown(place, 0, group)
        os.chmod(place, mode)
        self.place, self.group = place, group
        self.is_read_only = bool(files)
        for name, text in dict(files).items():
            self.write(name, text)

    def write(self, name, text, mode=0o440):
        """As the files of ConfigMaps and Secrets are, with `fsGroup`; scripts are for all to run."""
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, pathlib.Path):
            shutil.copy(text, path)
        else:
            path.write_text(textwrap.dedent(text).lstrip("\n"))
        os.chown(path, 0, self.group)
        os.chmod(path, 0o555 if path.suffix == ".sh" else mode)


class Contents(package.Root):
    """A copy of the clean root. It goes when the namespaces have gone, with what is mounted there."""

    def __init__(self, password):
        super().__init__(BASE)
        # The variable in which its client looks for a password.
        self.password = password

    def __exit__(self, *_):
        pass


class World:
    """A network for pods of one image, in the namespaces of this process."""

    def __init__(self, image, name):
        self.image, self.name, self.pods, self.volumes = image, name, [], 0
        self.place = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=image.dir.parent))
        (self.place / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")

    def __enter__(self):
        run("ip", "link", "add", "pods", "type", "bridge")
        run("ip", "address", "add", "10.97.0.1/16", "dev", "pods")
        run("ip", "link", "set", "pods", "up")
        return self

    def __exit__(self, error, *_):
        for pod in self.pods:
            if error:
                print(f"---- the end of the log of {pod.name}:", pod.log()[-2500:], sep="\n")
            if pod.server and pod.server.poll() is None:
                pod.kill()
            run("ip", "netns", "delete", pod.net)
        run("ip", "link", "delete", "pods")

    def volume(self, files=(), group=1000):
        self.volumes += 1
        return Volume(self.place / f"volume{self.volumes}", group, files)

    def pod(self, name, **how):
        pod = Pod(self, name, **how)
        self.pods.append(pod)
        return pod

    def name_hosts(self, *services):
        """Gives the pods their names, and services those of all pods."""
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        lines += [f"{pod.ip} {pod.full} {pod.name}" for pod in self.pods if pod.ip]
        lines += [f"{pod.ip} {service}" for service in services for pod in self.pods if pod.ip]
        (self.place / "hosts").write_text("\n".join(lines) + "\n")


class Pod:
    def __init__(self, world, name, volumes, environment=None, user=1000, domain="", read_only=True):
        self.world, self.name, self.user, self.ip, self.server = world, name, user, None, None
        self.full = f"{name}.{domain}" if domain else name
        self.environment = {"PATH": PATH, "HOSTNAME": name, **(environment or {})}
        self.root = world.place / f"root-{name}"
        self.root.mkdir()
        (world.image.dir / "etc/hosts").touch()
        for at in volumes:
            (world.image.dir / at.lstrip("/")).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", world.image.dir, self.root)
        if read_only:
            run("mount", "-o", "remount,ro,bind", self.root)
        for at, volume in sorted(volumes.items()):
            target = self.root / at.lstrip("/")
            run("mount", "--bind", volume.place, target)
            if volume.is_read_only:
                run("mount", "-o", "remount,ro,bind", target)
        run("mount", "--bind", world.place / "hosts", self.root / "etc/hosts")
        run("mount", "-t", "proc", "proc", self.root / "proc")

    def at(self, number):
        """Gives the pod an address, in place of the one that it had."""
        if self.ip:
            run("ip", "netns", "delete", self.net)
            # The kernel takes the other end of the cable away a moment later.
            wait_until(lambda: not pathlib.Path(f"/sys/class/net/pod{self.number}").exists(), "the cable is gone")
        self.number, self.ip = number, f"10.97.1.{number}"
        self.net = f"pod{number}"
        run("ip", "netns", "add", self.net)
        run("ip", "link", "add", self.net, "type", "veth", "peer", "name", "eth0", "netns", self.net)
        run("ip", "link", "set", self.net, "master", "pods", "up")
        for words in [f"address add {self.ip}/16 dev eth0", "link set eth0 up", "link set lo up"]:
            run("ip", "-n", self.net, *words.split())
        return self

    def words(self, command, environment, user=None):
        user = self.user if user is None else user
        enter = 'hostname "$0"; exec "$@"'
        rights = f"--reuid={user} --regid={user} --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"
        variables = [f"{name}={value}" for name, value in {**self.environment, **environment}.items()]
        words = ["ip", "netns", "exec", self.net, "unshare", "--uts", "sh", "-c", enter, self.name, "chroot", self.root,
                 "setpriv", *rights.split(), "env", "-i", "--chdir=/data", *variables, *command]
        return [str(word) for word in words]

    def execute(self, *command, **environment):
        """What a probe, an init container or `kubectl exec` runs: exit status and output."""
        done = subprocess.run(self.words(command, environment), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=120)
        return done.returncode, done.stdout

    def does(self, *command, **environment):
        """What such a command prints; it has to succeed."""
        status, output = self.execute(*command, **environment)
        check(status == 0, f"in {self.name} {command} succeeds: {status}: {output}\n{self.log()}")
        return output

    def start(self, *command):
        with open(self.world.place / f"log-{self.name}", "a") as log:
            self.server = subprocess.Popen(self.words(command, {}), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def log(self):
        path = self.world.place / f"log-{self.name}"
        return path.read_text() if path.exists() else ""

    def is_ready(self, *probe):
        check(self.server.poll() is None, f"{self.name} runs: {self.log()}")
        return self.execute(*probe)[0] == 0

    def await_ready(self, *probe):
        wait_until(lambda: self.is_ready(*probe), f"{probe} succeeds in {self.name}: {self.execute(*probe)} {self.log()}")

    def stop(self):
        """Sends SIGTERM; the server has to end well."""
        self.server.terminate()
        status = self.server.wait(60)
        check(status == 0, f"{self.name} ends with {status}: {self.log()}")

    def kill(self):
        self.server.kill()
        self.server.wait()

    def client(self, *login, port=6379):
        client = Client(self.ip, port)
        if login:
            client.call(*login)
        return client


def info(client, field):
    lines = client.call("INFO", "replication").split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line).get(field)


def certificates(place):
    """A server's certificate, its key and the authority's certificate, by the names of the chart's values."""
    place.mkdir()
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=authority", "-days", 2,
        "-keyout", place / "ca.key", "-out", place / "ca.crt")
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext", names,
        "-keyout", place / "server.key", "-out", place / "server.csr")
    run("openssl", "x509", "-req", "-in", place / "server.csr", "-CA", place / "ca.crt", "-CAkey", place / "ca.key",
        "-CAcreateserial", "-days", 2, "-copy_extensions", "copy", "-out", place / "server.crt")
    return {name: place / name for name in ["server.crt", "server.key", "ca.crt"]}
