"""Runs the examples of docs/caching.md, docs/leases.md and docs/clients.md: BINARY [FOLDER-WITH-NODE-MODULES].

Each example is a file, named in its first line, and is run as that: a recipe (it defines `page` or `locked`) by 50 tasks
at once that share one client and one connection, see `shared_connection`; any other as it stands, but for the port, and
twice, as a reader would.
"""
import os, pathlib, re, socket, subprocess, sys, tempfile, time

import redis

ROOT = pathlib.Path(__file__).resolve().parents[2]
binary, modules = sys.argv[1], pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None

examples = {}
for page in ("caching", "leases", "clients"):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    for kind, body in re.findall(r"```(python|javascript|js)\n(.*?)```", text, re.S):
        ending, comment = {"python": ("py", "#")}.get(kind, ("mjs", "//"))
        name = re.match(rf"{comment} (\w+\.{ending}), for ", body)
        assert name, f"an example of docs/{page}.md without a name: {body[:40]!r}"
        assert name[1] not in examples, f"{name[1]} twice"
        examples[name[1]] = body
recipes = sorted(name for name, body in examples.items() if re.search(r"^(export )?(async )?(def|function) (page|locked)\(", body, re.M))
assert len(recipes) == 8, f"leases and locks for four clients, not {recipes}"


def serve(folder, *arguments):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [binary, "--port", str(port), "--metrics-port", "0", "--save", "", "--dir", folder, *arguments]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    for _ in range(600):
        try:
            redis.Redis(port=port).ping()
            return server, port
        except redis.ConnectionError:
            time.sleep(0.05)
    server.kill()
    raise AssertionError("no server")


def for_port(body, port):
    """The example as it stands, but for where the server is."""
    body = body.replace("redis.Redis()", f"redis.Redis(port={port})")
    body = body.replace("redis.Redis(socket", f"redis.Redis(port={port}, socket").replace("port=6379", f"port={port}")
    return body.replace("new Redis()", f"new Redis({port})")


def run_all(folder, port, cluster_port):
    ran = 0
    # Node looks for modules beside a file and above it, and not in NODE_PATH.
    if modules:
        (folder / "node_modules").symlink_to(modules.resolve())
    for name, body in examples.items():
        (folder / name).write_text(for_port(body, cluster_port if name.startswith("cluster") else port))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python")}
    for name in examples:
        is_python = name.endswith(".py")
        if not is_python and not modules:
            continue
        redis.Redis(port=port).flushall()
        if name in recipes:
            runner = ROOT / "tests" / "clients" / ("shared_connection.py" if is_python else "shared_connection.mjs")
            # A copy beside the recipe, for the modules.
            copy = folder / runner.name
            copy.write_text(runner.read_text())
            words = [copy, port, folder / name]
        else:
            words = [folder / name]
        words = [sys.executable if is_python else "node", *map(str, words)]
        for _ in range(1 if name in recipes else 2):
            subprocess.run(words, check=True, timeout=60, env=environment)
        ran += 1
    return ran


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    servers = []
    try:
        servers.append(serve(folder))
        servers.append(serve(folder, "--cluster-enabled", "emulated"))
        ran = run_all(folder, servers[0][1], servers[1][1])
        print(f"{ran} examples of docs/, {len(recipes) if modules else len(recipes) // 2} of them by 50 at once over one connection")
    finally:
        for server, _ in servers:
            server.kill()
            server.wait()
