// ioredis over TLS with a certificate: PORT FOLDER, where the folder has ca.crt, client.crt and client.key.
const Redis = require("ioredis");
const fs = require("fs");
const assert = require("assert");

const [port, folder] = process.argv.slice(2);
const file = (name) => fs.readFileSync(`${folder}/${name}`);
const tls = { ca: file("ca.crt"), cert: file("client.crt"), key: file("client.key") };
const connect = (more) => new Redis({ host: "localhost", port: Number(port), tls, ...more });
const once = (emitter, event) => new Promise((resolve) => emitter.once(event, (...args) => resolve(args)));

async function main() {
  const client = connect();
  const value = "v".repeat(300000);
  assert.strictEqual(await client.set("key", value), "OK");
  assert.strictEqual(await client.get("key"), value);
  const pipeline = client.pipeline();
  for (let number = 0; number < 1000; number++) pipeline.set(`key:${number}`, number).get(`key:${number}`);
  const replies = await pipeline.exec();
  replies.forEach(([error, reply], at) => assert.ok(!error && reply === (at % 2 ? String((at - 1) / 2) : "OK")));
  const counts = await Promise.all(Array.from({ length: 200 }, () => client.incr("ioredis")));
  assert.deepStrictEqual(counts, Array.from({ length: 200 }, (_, at) => at + 1));

  const subscriber = connect();
  await subscriber.subscribe("news");
  let message = once(subscriber, "message");
  assert.strictEqual(await client.publish("news", "hello"), 1);
  assert.deepStrictEqual(await message, ["news", "hello"]);

  // Killed, both connect anew by themselves, and the subscriber subscribes again.
  const killer = connect();
  const own = await killer.client("ID");
  const ids = [...(await killer.client("LIST")).matchAll(/^id=(\d+)/gm)].map((match) => match[1]);
  const ready = [once(client, "ready"), once(subscriber, "ready")];
  for (const id of ids) if (id !== String(own)) await killer.client("KILL", "ID", id);
  await Promise.all(ready);
  assert.strictEqual(await client.get("key:7"), "7");
  message = once(subscriber, "message");
  while ((await client.publish("news", "again")) !== 1) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepStrictEqual(await message, ["news", "again"]);
  for (const each of [client, subscriber, killer]) each.disconnect();

  const bare = new Redis({ host: "localhost", port: Number(port), tls: { ca: tls.ca }, retryStrategy: null, lazyConnect: true });
  bare.on("error", () => {});
  await assert.rejects(bare.ping());
  bare.disconnect();
  console.log(`ioredis ${require("ioredis/package.json").version}`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
