// Against a server, by 50 requests that share one client: PORT PORT-OF-AN-EMULATED-CLUSTER, both clients installed.
//
// Loads and holders are counted, so that a load too many or two holders at once fail; nothing is judged by time.
"use strict";
const assert = require("node:assert");
const { Cache, LockLost } = require("..");
const Redis = require("ioredis");
const redis = require("redis");

const [port, clusterPort] = process.argv.slice(2).map(Number);
const WORKERS = 50;
const all = (work) => Promise.all(Array.from({ length: WORKERS }, work));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function everything(client) {
  const cache = new Cache(client);
  const plain = new Redis(port);
  await plain.flushall();
  await plain.config("RESETSTAT");

  let loads = 0;
  const load = async () => {
    loads += 1;
    // Until others were told to wait.
    for (;;) {
      const [, calls] = /cmdstat_lget:calls=(\d+)/.exec(await plain.info("commandstats"));
      if (Number(calls) >= WORKERS) return "page";
    }
  };
  const seen = await all(() => cache.getOrLoad("page:7", load, { ttl: 60000, stale: 30000, tags: ["shop:3"] }));
  assert.strictEqual(loads, 1);
  assert.deepStrictEqual(seen, Array(WORKERS).fill("page"));
  assert.strictEqual(await cache.invalidate("shop:3"), 1);
  assert.strictEqual(await plain.get("page:7"), null);

  const fences = [];
  let inside = 0;
  await all(() =>
    cache.lock("order:7", { wait: 100000 }, async (lock) => {
      inside += 1;
      assert.strictEqual(inside, 1);
      await lock.set("order:7:state", lock.fence);
      fences.push(lock.fence);
      inside -= 1;
    }),
  );
  assert.strictEqual(new Set(fences).size, WORKERS);
  assert.deepStrictEqual(fences, [...fences].sort((one, other) => one - other));
  assert.strictEqual(await plain.get("order:7:state"), String(fences.at(-1)));
  assert.strictEqual(await plain.exists("order:7"), 0);

  await cache.lock("long", { ttl: 3000 }, async (lock) => {
    for (let extended = 0, before = 0; extended < 2; await pause(20)) {
      const left = await plain.pttl("long");
      if (before > 0 && left > before + 500) extended += 1;
      before = left;
    }
    assert.strictEqual(lock.lost, false);
  });

  const lost = await cache.acquire("short", { ttl: 3000, maxHold: 0 });
  await plain.del("short");
  await cache.lock("short", { wait: 100000 }, async (other) => {
    assert.ok(other.fence > lost.fence);
    await assert.rejects(lost.set("row", "old"), LockLost);
    assert.ok(lost.signal.aborted && lost.lost);
    assert.strictEqual(await lost.release(), false);
    await other.set("row", "new", { ttl: 50000 });
  });
  assert.strictEqual(await plain.get("row"), "new");
  assert.ok((await plain.ttl("row")) > 0);

  // A lock that somebody deletes is found lost by the next renewal.
  const deleted = await cache.acquire("deleted", { ttl: 300 });
  await plain.del("deleted");
  if (!deleted.signal.aborted) await new Promise((resolve) => deleted.signal.addEventListener("abort", resolve));
  assert.strictEqual(await deleted.release(), false);

  await cache.set("user:1", "ann", { ttl: 60000, stale: 10000, tags: ["users"] });
  await plain.hset("user:2", "name", "bob");
  assert.strictEqual(await cache.tag("user:2", "users", "people"), 2);
  assert.strictEqual(await cache.invalidate("users", "nobody"), 2);
  const rates = [];
  for (let at = 0; at < 4; at++) rates.push(await cache.throttle("login", { burst: 2, count: 1, period: 60 }));
  assert.deepStrictEqual(rates.map((rate) => rate.limited), [false, false, false, true]);

  // While writes are refused all get what they load, and nobody waits for a lease, which would be for an hour.
  await plain.flushall();
  await plain.config("SET", "maxmemory", "1");
  const hour = { ttl: 60000, lease: 3600000, wait: 100000 };
  const refused = await all(() => cache.getOrLoad("page:9", async () => "page", hour));
  await plain.config("SET", "maxmemory", "0");
  assert.deepStrictEqual(refused, Array(WORKERS).fill("page"));
  await assert.rejects(cache.getOrLoad("page:9", () => ({ id: 7 }), hour), TypeError);
  assert.strictEqual(await cache.getOrLoad("page:9", () => 9, hour), "9");
  assert.strictEqual(await cache.getOrLoad("page:9", () => 8, hour), "9");
  assert.match(await plain.info("leases"), /leases_in_force:0\r/);
  plain.disconnect();
}

async function inACluster(client) {
  const cache = new Cache(client);
  const one = { ttl: 60000, tags: ["both"] };
  assert.strictEqual(await cache.getOrLoad("{a}", () => "1", one), "1");
  assert.strictEqual(await cache.getOrLoad("{b}", () => "2", one), "2");
  assert.strictEqual(await cache.invalidate("both"), 2);
  await cache.lock("{a}lock", (lock) => lock.set("{a}row", "1"));
  assert.strictEqual((await cache.throttle("rate", { burst: 1, count: 1, period: 1 })).limited, false);
}

async function main() {
  for (const options of [{}, { stringNumbers: true }]) {
    const client = new Redis(port, options);
    await everything(client);
    const value = Buffer.from([0, 255, 13, 10]);
    const bytes = new Cache({ call: (...words) => client.callBuffer(...words) });
    for (const loaded of [value, "none"]) {
      assert.deepStrictEqual(await bytes.getOrLoad("bytes", () => loaded, { ttl: 60000 }), value);
    }
    client.disconnect();
  }
  for (const RESP of [2, 3]) {
    const client = redis.createClient({ socket: { port }, RESP });
    await client.connect();
    await everything(client);
    const bytes = new Cache(client.withTypeMapping({ [redis.RESP_TYPES.BLOB_STRING]: Buffer }));
    const value = Buffer.from([0, 255, 13, 10]);
    assert.deepStrictEqual(await bytes.getOrLoad("bytes", () => value, { ttl: 60000 }), value);
    assert.deepStrictEqual(await bytes.getOrLoad("bytes", () => "none", { ttl: 60000 }), value);
    await client.close();
  }
  const cluster = new Redis.Cluster([{ host: "127.0.0.1", port: clusterPort }]);
  await inACluster(cluster);
  cluster.disconnect();
  const other = redis.createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${clusterPort}` }] });
  await other.connect();
  await inACluster(other);
  await other.close();
  const versions = ["ioredis", "redis"].map((name) => `${name} ${require(`${name}/package.json`).version}`);
  console.log(`basalt-cache for JavaScript, with ${versions.join(" and ")}: ${WORKERS} at once, one load, one holder`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
