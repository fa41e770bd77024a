"""Writers of one side: each appends numbers that grow to lists of its own, and notes what became of each.

    python3 client.py SIDE HISTORY TIMEOUT NODE...

For each third of the slots there is a writer that takes the reply for enough, and one that asks for WAIT 1 too. Before
it writes it reads the list's last number. A line of the history: key, number, begun, ended, the node that was asked,
what became of it (acknowledged, refused, unknown; or read), and whether a replica confirmed it. Ends at SIGTERM."""
import binascii, json, random, signal, sys, threading, time

from world import Connection, Refused

KEYS, PAUSE, WAIT_MS = 4, 0.005, 100
stopped = threading.Event()


def keys_of(side, third, mode):
    low, high, found, at = 16384 * third // 3, 16384 * (third + 1) // 3, [], 0
    while len(found) < KEYS:
        key = f"{side}:{mode}:{third}:{at}"
        if low <= binascii.crc_hqx(key.encode(), 0) % 16384 < high:
            found.append(key)
        at += 1
    return found


def number_of(key, entry):
    """The number of a list's entry: 0 for none, -1 for one that is not of this list."""
    if entry is None:
        return 0
    return int(entry.split("=")[1]) if entry.startswith(f"{key}=") else -1


def write(side, third, mode, nodes, timeout, lines):
    keys, node, connections, number = keys_of(side, third, mode), nodes[third], {}, 0
    while not stopped.is_set():
        number += 1
        key, begun, confirmed = keys[number % KEYS], time.monotonic(), False
        asked, fate, ended = node, "refused", None
        try:
            if node not in connections:
                connections[node] = Connection(node, timeout)
            last = connections[node].call("LINDEX", key, -1)
            lines.append(json.dumps([key, number_of(key, last), begun, time.monotonic(), node, "read", False]))
            fate = "unknown"
            connections[node].call("RPUSH", key, f"{key}={number}")
            fate, ended = "acknowledged", time.monotonic()
            if mode == "wait":
                confirmed = connections[node].call("WAIT", 1, WAIT_MS) >= 1
        except Refused as error:
            if fate == "unknown":
                fate = "refused"
            words = str(error).split()
            node = words[2].rsplit(":", 1)[0] if words[0] == "MOVED" else random.choice(nodes)
        except OSError:
            if node in connections:
                connections.pop(node).close()
            node = random.choice(nodes)
        lines.append(json.dumps([key, number, begun, ended or time.monotonic(), asked, fate, confirmed]))
        time.sleep(PAUSE)


def main():
    side, path, timeout, nodes = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    lines = []
    writers = [threading.Thread(target=write, args=(side, third, mode, nodes, timeout, lines))
               for third in range(3) for mode in ("plain", "wait")]
    for writer in writers:
        writer.start()
    while not stopped.wait(0.1):
        pass
    for writer in writers:
        writer.join()
    with open(path, "w") as file:
        file.write("\n".join(lines))


main()
