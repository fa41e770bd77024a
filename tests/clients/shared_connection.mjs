// A recipe of docs/ by 50 requests over one connection: PORT FILE.
//
// One load for a missing key, one holder of a lock at a time, and nobody is stuck. Nothing is judged by time.
import assert from "node:assert";
import Redis from "ioredis";

const [port, file] = [Number(process.argv[2]), process.argv[3]];
const WORKERS = 50;
const PATIENCE_MS = 100000;
const recipe = await import(file);
const plain = new Redis(port);
await plain.config("RESETSTAT");

/** A connected client, and how to end it. */
async function connect() {
  if (!file.includes("node_redis")) {
    const client = new Redis(port);
    return [client, () => client.disconnect()];
  }
  const { createClient } = await import("redis");
  const client = await createClient({ socket: { port } }).connect();
  return [client, () => client.destroy()];
}

async function everyoneAsked(command) {
  const found = new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(await plain.info("commandstats"));
  return found !== null && Number(found[1]) >= WORKERS;
}

const [client, end] = await connect();
const all = (work) => Promise.all(Array.from({ length: WORKERS }, work));

if (recipe.page) {
  let loads = 0;
  const load = async () => {
    loads += 1;
    while (!(await everyoneAsked("lget")));
    assert.strictEqual((await plain.client("LIST")).trim().split("\n").length, 2);
    return "loaded";
  };
  const seen = await all(() => recipe.page(client, "page:7", load, PATIENCE_MS));
  assert.strictEqual(loads, 1);
  assert.deepStrictEqual(seen, Array(WORKERS).fill("loaded"));
  // A row that changes while it is loaded is not stored; the error of a loader is its caller's, and ends the lease.
  const old = await recipe.page(client, "page:8", async (key) => {
    await plain.del(key);
    return "old";
  });
  assert.strictEqual(old, "old");
  assert.strictEqual(await plain.get("page:8"), null);
  const fails = async () => {
    throw new RangeError("no database");
  };
  await assert.rejects(recipe.page(client, "page:8", fails), RangeError);
  await assert.rejects(recipe.page(client, "page:8", async () => ({ id: 7 })), TypeError);
  // While writes are refused all get what they load.
  await plain.config("SET", "maxmemory", "1");
  const refused = await all(() => recipe.page(client, "page:9", async () => "loaded", PATIENCE_MS));
  await plain.config("SET", "maxmemory", "0");
  assert.deepStrictEqual(refused, Array(WORKERS).fill("loaded"));
  assert.match(await plain.info("leases"), /leases_in_force:0\r/);
} else {
  let inside = 0;
  const fences = [];
  const work = async (fence) => {
    inside += 1;
    assert.strictEqual(inside, 1, "two hold the lock");
    fences.push(fence);
    if (fences.length === 1) while (!(await everyoneAsked("lock")));
    await client.set("row", String(fence));
    inside -= 1;
  };
  await all(() => recipe.locked(client, "lock", work, PATIENCE_MS));
  assert.strictEqual(new Set(fences).size, WORKERS);
  assert.deepStrictEqual(fences, [...fences].sort((one, other) => one - other));
  assert.strictEqual(await plain.exists("lock"), 0);
}
end();
plain.disconnect();
