// The types fit both clients and what a program does with them; compiled by .ci/clients, never run.
import Redis from "ioredis";
import { createClient, createCluster } from "redis";
import { Cache, BasaltError, LockLost, type Rate } from "..";

export async function use(): Promise<string | null> {
  for (const client of [new Redis(), new Redis.Cluster([]), createClient(), createCluster({ rootNodes: [] })]) {
    new Cache(client);
  }
  const cache = new Cache(new Redis());
  const page: string | null = await cache.getOrLoad("k", async (key) => key, { ttl: 1000, tags: ["a"] });
  const bytes: Buffer | string | null = await cache.getOrLoad("k", () => Buffer.from("x"), { ttl: 1 });
  const number: string | null = await cache.getOrLoad("k", () => 7, { ttl: 1 });
  // @ts-expect-error: an object has no form of its own
  await cache.getOrLoad("k", async () => ({ id: 7 }), { ttl: 1 });
  // @ts-expect-error: what is stored has a ttl
  await cache.getOrLoad("k", async () => "v", { stale: 1 });
  const length: number = await cache.lock("l", { ttl: 1000 }, async (lock) => {
    lock.signal.addEventListener("abort", () => undefined);
    await lock.set("row", "v", { ttl: lock.fence });
    return 1;
  });
  const rate: Rate = await cache.throttle("k", { burst: 1, count: 1, period: 1 });
  await cache.set("k", "v", { ttl: length });
  try {
    await (await cache.acquire("l")).release();
  } catch (error) {
    if (error instanceof LockLost || (error instanceof BasaltError && error.code === "LOCK_TIMEOUT")) return page;
  }
  return bytes === null || number === null || rate.retryAfter === null ? null : String(bytes);
}
