// ioredis's cluster client for history.py, which says what it does: PORT ...
const Redis = require("ioredis");
const readline = require("readline");

const nodes = process.argv.slice(2).map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const cluster = new Redis.Cluster(nodes, { redisOptions: { commandTimeout: 10000 } });
// Of connections that break; what becomes of a command is told to the command.
cluster.on("error", () => {});

const writers = 4;
const keys = 50;
const sent = new Map();
const acknowledged = new Map();
let floor = null;
let running = true;
const saw = { writes: 0, lost: 0, errors: {}, wrong: [] };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function check(key, value) {
  const number = Number(value ?? 0);
  const least = acknowledged.get(key) ?? 0;
  if (number >= least && number <= sent.get(key)) return;
  if (floor && number < least && number >= (floor.get(key) ?? 0)) {
    saw.lost++;
    acknowledged.set(key, number);
    return;
  }
  saw.wrong.push(`${key} is ${value}, and ${least} was acknowledged and ${sent.get(key)} sent`);
}

async function write(writer) {
  for (let number = 1; running; number++) {
    const key = `writer:${writer}:${number % keys}`;
    try {
      sent.set(key, number);
      await cluster.set(key, number);
      acknowledged.set(key, number);
      saw.writes++;
      check(key, await cluster.get(key));
    } catch (error) {
      const kind = String(error.lastNodeError?.message ?? error.message).replace(/\d+/g, "N");
      saw.errors[kind] = (saw.errors[kind] ?? 0) + 1;
      await sleep(20);
    }
  }
}

async function main() {
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("line", () => (floor = new Map(acknowledged)));
  lines.on("close", () => (running = false));
  await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)));
  for (const key of acknowledged.keys()) check(key, await cluster.get(key));
  console.log(JSON.stringify(saw));
  process.exit(0);
}

main();
