"""Clients that ask for maintenance notifications and never read: what they cost the server, and what another client notices.

    silent_listeners.py BINARY [--clients 10000] [--rounds 300]

A primary with a replica that is stopped, so that each FAILOVER begins and is aborted: two notifications to every client. Once the
buffers of the sockets are full, notifications are dropped. Then the replica goes on, and takes over. Needs as many open files as there
are clients, twice. Only the standard library is used.
"""
import argparse, json, os, pathlib, resource, signal, socket, subprocess, tempfile, threading, time

PORT = 21470


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        parts = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        line = self.file.readline()
        if line[:1] == b"$":
            return self.file.read(int(line[1:]) + 2)[:-2].decode()
        return line.decode().strip()

    def info(self, field):
        lines = self.call("INFO", "everything").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)[field]


def start(binary, port, folder, *more):
    os.mkdir(f"{folder}/{port}")
    log = open(f"{folder}/{port}/log", "wb")
    process = subprocess.Popen([binary, "--port", str(port), "--metrics-port", "0", "--save", "", "--dir", f"{folder}/{port}",
                                "--repl-diskless-sync-delay", "0", "--maxclients", "60000", *more], stdout=log, stderr=log)
    while True:
        try:
            return process, Client(port)
        except OSError:
            time.sleep(0.05)


def resident(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) * 1024


class Watcher:
    """A client with a load of its own; its latencies by phase."""

    def __init__(self, port):
        self.client, self.phase, self.seen, self.stopped = Client(port), "alone", {}, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stopped:
            began = time.perf_counter()
            self.client.call("GET", "key")
            self.seen.setdefault(self.phase, []).append(time.perf_counter() - began)
            time.sleep(0.001)

    def end(self):
        self.stopped = True
        self.thread.join()
        rows = {}
        for phase, times in self.seen.items():
            times.sort()
            rows[phase] = {"gets": len(times), "p50_us": round(times[len(times) // 2] * 1e6),
                           "p99_us": round(times[len(times) * 99 // 100] * 1e6), "max_ms": round(times[-1] * 1e3, 1)}
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        try:
            primary, admin = start(options.binary, PORT, folder)
            processes.append(primary)
            replica, other = start(options.binary, PORT + 1, folder, "--replicaof", "127.0.0.1", str(PORT))
            processes.append(replica)
            while other.info("master_link_status") != "up":
                time.sleep(0.05)
            print(json.dumps(measure(options, primary, admin, replica, other), indent=1))
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)
                process.kill()


def measure(options, primary, admin, replica, other):
    admin.call("SET", "key", "value")
    watcher, found = Watcher(PORT), {"clients": options.clients}
    time.sleep(1)
    found["resident_mb_alone"] = resident(primary) >> 20
    watcher.phase, began = "connecting", time.monotonic()
    listeners = []
    for _ in range(options.clients):
        listener = socket.create_connection(("127.0.0.1", PORT))
        listener.sendall(b"HELLO 3\r\nCLIENT MAINT_NOTIFICATIONS ON\r\n")
        listeners.append(listener)
    while int(admin.info("maint_notification_clients")) < options.clients:
        time.sleep(0.05)
    found["connected_in_s"] = round(time.monotonic() - began, 1)
    before = resident(primary)
    found["resident_mb_connected"] = before >> 20
    replica.send_signal(signal.SIGSTOP)
    # The replica lacks this, so no failover can succeed.
    admin.call("SET", "key", "later")
    watcher.phase, slowest, began = "notifying", 0.0, time.monotonic()
    for _ in range(options.rounds):
        at = time.monotonic()
        assert admin.call("FAILOVER", "TIMEOUT", 60000) == "+OK"
        assert admin.call("FAILOVER", "ABORT") == "+OK"
        slowest = max(slowest, time.monotonic() - at)
    all_of_them = options.rounds * 2 * options.clients
    while (sent := int(admin.info("maint_notifications_sent"))) + int(admin.info("maint_notifications_dropped")) < all_of_them:
        time.sleep(0.05)
    found |= {"notifications": all_of_them, "sent": sent, "dropped": all_of_them - sent, "seconds": round(time.monotonic() - began, 1),
              "slowest_failover_and_abort_ms": round(slowest * 1000, 1), "resident_mb_notified": resident(primary) >> 20,
              "used_memory_mb": int(admin.info("used_memory")) >> 20, "bytes_per_client": (resident(primary) - before) // options.clients}
    watcher.phase, began = "handing over", time.monotonic()
    replica.send_signal(signal.SIGCONT)
    assert admin.call("FAILOVER", "TIMEOUT", 60000) == "+OK"
    while other.info("role") != "master":
        time.sleep(0.005)
    found["handover_ms"] = round((time.monotonic() - began) * 1000)
    assert admin.call("PING") == "+PONG"
    watcher.phase, began = "closing", time.monotonic()
    for listener in listeners:
        listener.close()
    while int(admin.info("maint_notification_clients")) > 0:
        time.sleep(0.05)
    found["closed_in_s"] = round(time.monotonic() - began, 1)
    time.sleep(2)
    found["resident_mb_after"] = resident(primary) >> 20
    found["gets_of_another_client"] = watcher.end()
    return found


if __name__ == "__main__":
    main()
