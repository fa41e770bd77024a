// The load of rolling_upgrade.py by node-redis: HOST PORT LOOPS [cluster], until its input ends; then what the application saw,
// as JSON. All loops share one connection, as is usual with node-redis, or one to each primary of a cluster.
const { createClient, createCluster } = require("redis");

const [host, port, loops] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const seen = { requests: 0, errors: 0, kinds: {}, error_events: 0, stale_or_lost: 0, longest_pause_of_writes_ms: 0 };
let stopped = false;

async function loop(client, number) {
  let count = 0, written = 0, last = Date.now();
  const attempt = async (step) => {
    try {
      await step();
      seen.requests += 1;
      return true;
    } catch (error) {
      if (process.env.SHOW_ERRORS) console.error(Date.now(), "request", error.message);
      const kind = `${error.constructor.name}: ${error.message.slice(0, 60)}`;
      seen.errors += 1;
      seen.kinds[kind] = (seen.kinds[kind] || 0) + 1;
      await new Promise((resolve) => setTimeout(resolve, 10));
      return false;
    }
  };
  while (!stopped) {
    count += 1;
    if (await attempt(() => client.set(`{${number}}:key`, count))) {
      written = count;
      seen.longest_pause_of_writes_ms = Math.max(seen.longest_pause_of_writes_ms, Date.now() - last);
      last = Date.now();
    }
    await attempt(async () => {
      if (Number(await client.get(`{${number}}:key`)) < written) seen.stale_or_lost += 1;
    });
    await attempt(() => client.multi().incr(`{${number}}:total`).get(`{${number}}:key`).exec());
  }
}

async function main() {
  const options = { RESP: 3, maintNotifications: "auto" };
  const client = process.argv[5] === "cluster"
    ? createCluster({ rootNodes: [{ socket: { host, port } }], ...options, defaults: options })
    : createClient({ socket: { host, port }, ...options });
  client.on("error", (error) => {
    seen.error_events += 1;
    if (process.env.SHOW_ERRORS) console.error(Date.now(), "event", error.message);
  });
  await client.connect();
  process.stdin.on("end", () => { stopped = true; }).resume();
  await Promise.all(Array.from({ length: loops }, (_, number) => loop(client, number)));
  console.log(JSON.stringify(seen));
  process.exit(0);
}

main();
