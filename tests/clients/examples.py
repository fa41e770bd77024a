"""Runs the examples of docs/caching.md against a server of its own: BINARY [FOLDER-WITH-IOREDIS]."""
import os, pathlib, re, socket, subprocess, sys, tempfile, time

import redis

binary, modules = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "caching.md").read_text()
examples = {kind: re.findall(rf"```{kind}\n(.*?)```", page, re.S) for kind in ("python", "js")}
assert len(examples["python"]) >= 3 and len(examples["python"]) == len(examples["js"]), "one of each for each section"

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
with tempfile.TemporaryDirectory() as folder:
    server = subprocess.Popen([binary, "--port", str(port), "--metrics-port", "0", "--save", "", "--dir", folder],
                              stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                redis.Redis(port=port).ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
        for text in examples["python"]:
            assert "redis.Redis()" in text
            exec(compile(text.replace("redis.Redis()", f"redis.Redis(port={port})"), "example", "exec"), {})
        if modules:
            environment = {**os.environ, "NODE_PATH": modules}
            for text in examples["js"]:
                assert "new Redis()" in text
                body = text.replace("new Redis()", f"new Redis({port})")
                script = f"(async () => {{\n{body}\nclient.disconnect();\n}})().catch((e) => {{ console.error(e); process.exit(1); }});"
                subprocess.run(["node", "-e", script], check=True, timeout=60, env=environment)
        ran = len(examples["python"]) + (len(examples["js"]) if modules else 0)
        print(f"{ran} examples of docs/caching.md")
    finally:
        server.kill()
        server.wait()
