// The JavaScript of docs/leases.md against a server: one load for many clients, no old value behind a deletion.
"use strict";
const assert = require("assert");
const fs = require("fs");
const path = require("path");
const Redis = require("ioredis");

const port = Number(process.argv[2]);
const text = fs.readFileSync(path.join(__dirname, "..", "..", "docs", "leases.md"), "utf8");
const [, source] = /```javascript\n(.*?)```/s.exec(text);
const page = new Function(`${source}\nreturn page;`)();

async function main() {
  const connect = () => new Redis({ port, stringNumbers: true });
  const cache = connect();
  await cache.flushall();
  const clients = Array.from({ length: 20 }, connect);
  let loads = 0;
  const load = async () => {
    loads += 1;
    for (;;) {
      if (/leases_waiting:19\r/.test(await cache.info("leases"))) return "loaded";
    }
  };
  const seen = await Promise.all(clients.map((client) => page(client, "page:7", load)));
  assert.strictEqual(loads, 1);
  assert.deepStrictEqual(seen, Array(20).fill("loaded"));
  await cache.del("page:7");
  const old = await page(cache, "page:7", async (key) => {
    await cache.del(key);
    return "old";
  });
  assert.strictEqual(old, "old");
  assert.strictEqual(await cache.get("page:7"), null);
  await assert.rejects(page(cache, "page:7", async () => { throw new Error("no database"); }), /no database/);
  assert.match(await cache.info("leases"), /leases_in_force:0\r/);
  for (const client of [cache, ...clients]) client.disconnect();
  console.log("docs/leases.md: its JavaScript works");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
