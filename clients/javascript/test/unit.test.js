// Without a server: what the operations send, by answers that are written down here.
"use strict";
const assert = require("node:assert");
const { test } = require("node:test");
const { Cache, LoadTimeout, LockLost, LockTimeout, UnsupportedServer } = require("..");

/** Clients of both kinds that expect these commands, and answer so: pairs of words and an answer or an error. */
async function play(dialogue, run) {
  for (const kind of ["ioredis", "node-redis"]) {
    const left = [...dialogue];
    const answer = async (words) => {
      assert.ok(left.length > 0, `one more: ${words}`);
      const [expected, reply] = left.shift();
      assert.deepStrictEqual(words.slice(0, expected.length), expected.map(String), kind);
      if (reply instanceof Error) throw reply;
      return reply;
    };
    await run(new Cache(kind === "ioredis" ? { call: (...words) => answer(words) } : { sendCommand: answer }));
    assert.deepStrictEqual(left, [], kind);
  }
}

const nobody = () => assert.fail("nobody may load");

test("a fresh value, or an old one without a token, is answered without a load", async () => {
  await play([[["LGET", "k", "LEASE", 5000], ["v", "hit", 0]]], async (cache) => {
    assert.strictEqual(await cache.getOrLoad("k", nobody, { ttl: 1 }), "v");
  });
  await play([[["LGET", "k"], ["old", "stale", "0"]]], async (cache) => {
    assert.strictEqual(await cache.getOrLoad("k", nobody, { ttl: 1 }), "old");
  });
});

test("a token has the caller load and store", async () => {
  const fill = ["LFILL", "k", 7, "new", "PX", 1500, "STALE", 30000, "TAGS", 2, "a", "b"];
  await play([[["LGET", "k"], ["old", "stale", 7]], [fill, 0]], async (cache) => {
    const options = { ttl: 1500, stale: 30000, tags: ["a", "b"] };
    assert.strictEqual(await cache.getOrLoad("k", async () => "new", options), "new");
  });
});

test("who is told busy asks again, until the time to wait is over", async () => {
  const busy = [["LGET", "k"], [null, "busy", 0]];
  await play([busy, busy, [["LGET", "k"], ["v", "hit", 0]]], async (cache) => {
    assert.strictEqual(await cache.getOrLoad("k", nobody, { ttl: 1 }), "v");
  });
  await play([busy], (cache) => assert.rejects(cache.getOrLoad("k", nobody, { ttl: 1, wait: 0 }), LoadTimeout));
});

test("a loader that fails gives up, and its error is the caller's", async () => {
  const fails = async () => {
    throw new RangeError("no row");
  };
  for (const answer of [1, new Error("gone")]) {
    await play([[["LGET", "k"], [null, "miss", 7]], [["LDROP", "k", 7], answer]], (cache) =>
      assert.rejects(cache.getOrLoad("k", fails, { ttl: 1 }), RangeError),
    );
  }
});

test("nothing that was loaded is not stored", async () => {
  await play([[["LGET", "k"], [null, "miss", 7]], [["LDROP", "k", 7], 1]], async (cache) => {
    assert.strictEqual(await cache.getOrLoad("k", () => undefined, { ttl: 1 }), null);
  });
});

const missing = [["LGET", "k"], [null, "miss", 7]];

test("a value that the server does not store is the caller's, and the next one may load", async () => {
  const warnings = [];
  process.on("warning", (warning) => warnings.push(warning.message));
  for (const dropped of [1, new Error("gone")]) {
    const refused = [["LFILL", "k", 7, "v"], new Error("MISCONF no room")];
    await play([missing, refused, [["LDROP", "k", 7], dropped], missing, [["LFILL"], 1]], async (cache) => {
      for (let at = 0; at < 2; at++) assert.strictEqual(await cache.getOrLoad("k", () => "v", { ttl: 1 }), "v");
    });
  }
  await new Promise(setImmediate);
  assert.deepStrictEqual(warnings, Array(4).fill("k was loaded but not stored: MISCONF no room"));
});

test("a value without a form of its own is an error at once, and the next one may load", async () => {
  for (const value of [{ id: 7 }, [1], true, new Date(), Symbol("s"), Object.create(null)]) {
    await play([missing, [["LDROP", "k", 7], 1]], (cache) =>
      assert.rejects(cache.getOrLoad("k", async () => value, { ttl: 1 }), /^TypeError: neither text/),
    );
    await play([], (cache) => assert.rejects(cache.set("k", value), TypeError));
  }
});

test("texts, bytes and numbers are stored as they are, and who loads gets what was stored", async () => {
  const bytes = Buffer.from([1, 2]);
  const view = new Uint8Array([0, 1, 2]).subarray(1);
  for (const [value, stored] of [["v", "v"], [7, "7"], [bytes, bytes], [view, bytes]]) {
    const seen = [];
    const call = async (...words) => (seen.push(words), words[0] === "LGET" ? [null, "miss", 7] : 1);
    assert.deepStrictEqual(await new Cache({ call }).getOrLoad("k", () => value, { ttl: 1 }), stored);
    assert.deepStrictEqual(seen[1].slice(0, 4), ["LFILL", "k", "7", stored]);
  }
});

test("options that are wrong take no lease", async () => {
  await play([], async (cache) => {
    await assert.rejects(cache.getOrLoad("k", nobody, {}), TypeError);
    await assert.rejects(cache.getOrLoad("k", nobody, { ttl: 1, tags: [{}] }), TypeError);
  });
});

test("another server is named, and another object is no client", async () => {
  const error = new Error("ERR unknown command 'LGET', with args beginning with: 'k'");
  await play([[["LGET", "k"], error]], (cache) =>
    assert.rejects(cache.getOrLoad("k", nobody, { ttl: 1 }), UnsupportedServer),
  );
  assert.throws(() => new Cache({}), TypeError);
  for (const options of [{ keyPrefix: "p:" }, { redisOptions: { keyPrefix: "p:" } }]) {
    assert.throws(() => new Cache({ call: nobody, options }), /keyPrefix/);
  }
});

test("tags are invalidated on every primary of a cluster", async () => {
  const node = (count) => ({ call: async (...words) => (assert.deepStrictEqual(words, ["TAG", "INVALIDATE", "a"]), count) });
  const ioredis = { call: nobody, nodes: (role) => (assert.strictEqual(role, "master"), [node(2), node("3")]) };
  assert.strictEqual(await new Cache(ioredis).invalidate("a"), 5);
  const client = { sendCommand: async () => 2 };
  const nodeRedis = { masters: [1, 2], nodeClient: async () => client, sendCommand: nobody };
  assert.strictEqual(await new Cache(nodeRedis).invalidate("a"), 4);
  assert.strictEqual(await new Cache(client).invalidate(), 0);
});

test("a command of a cluster of node-redis names its key", async () => {
  const seen = [];
  const client = { masters: [], sendCommand: async (...all) => (seen.push(all), ["v", "hit", 0]) };
  await new Cache(client).getOrLoad("k", nobody, { ttl: 1 });
  assert.deepStrictEqual(seen, [["k", false, ["LGET", "k", "LEASE", "5000"]]]);
});

test("a rate is read", async () => {
  const words = ["CL.THROTTLE", "k", 15, 30, 60, 1];
  await play([[words, [1, 16, 0, 2, 32]], [words, ["0", "16", "15", "-1", "2"]]], async (cache) => {
    const rate = { burst: 15, count: 30, period: 60 };
    const limited = { limited: true, limit: 16, remaining: 0, retryAfter: 2, resetAfter: 32 };
    assert.deepStrictEqual(await cache.throttle("k", rate), limited);
    assert.deepStrictEqual(await cache.throttle("k", rate), {
      limited: false, limit: 16, remaining: 15, retryAfter: null, resetAfter: 2,
    });
  });
});

const taken = [["LOCK", "l"], [9, 1]];
const foreign = new Error("NOTOWNER The lock is not held by this owner");

test("a lock is taken, shown and released, twice if a client took it twice", async () => {
  const write = [["SET", "row", "v", "FENCE", "l", 9], "OK"];
  await play([taken, write, [["UNLOCK", "l"], 1], [["UNLOCK", "l"], 0]], async (cache) => {
    const result = await cache.lock("l", { renew: false }, async (lock) => {
      assert.strictEqual(lock.fence, 9);
      assert.strictEqual(lock.lost, false);
      await lock.set("row", "v");
      return "done";
    });
    assert.strictEqual(result, "done");
  });
});

test("others have it for all the time", async () => {
  await play([[["LOCK", "l"], null]], (cache) => assert.rejects(cache.acquire("l", { wait: 0 }), LockTimeout));
});

test("a reply that never came leaves no lock behind", async () => {
  await play([[["LOCK", "l"], new Error("gone")], [["UNLOCK", "l"], 0]], (cache) =>
    assert.rejects(cache.acquire("l"), /gone/),
  );
});

test("a lost lock is told by a write and at the end", async () => {
  await play([taken, [["UNLOCK", "l"], foreign]], (cache) =>
    assert.rejects(cache.lock("l", { renew: false }, () => {}), LockLost),
  );
  await play([taken, [["SET", "row"], null], [["UNLOCK", "l"], foreign]], (cache) =>
    assert.rejects(cache.lock("l", { renew: false }, (lock) => lock.set("row", "v")), /nothing was written/),
  );
});

test("a lock that has run out is lost whatever the server says", async () => {
  await play([taken, [["UNLOCK", "l"], 0]], async (cache) => {
    const lock = await cache.acquire("l", { ttl: 1, renew: false });
    assert.strictEqual(lock.lost, true);
    assert.ok(lock.signal.aborted);
    assert.throws(() => lock.check(), LockLost);
    await lock.release();
  });
});

/** Ends, or hangs until the runner stops it. Timers of a lock do not keep a program running; a connection does. */
async function alive(run) {
  const connection = setInterval(() => {}, 1000);
  try {
    await run();
  } finally {
    clearInterval(connection);
  }
}

/** A cache whose server answers LOCK and LGET, and nothing else. */
function silent() {
  const never = new Promise(() => {});
  const answers = { LOCK: [9, 1], LGET: [null, "miss", 7] };
  return new Cache({ call: (command) => (command in answers ? Promise.resolve(answers[command]) : never) });
}

const aborted = (signal) =>
  new Promise((resolve) => (signal.aborted ? resolve() : signal.addEventListener("abort", resolve)));

test("a server that is silent keeps neither the signal nor the end of a lock", { timeout: 20000 }, async () => {
  await alive(async () => {
    for (const renew of [true, false]) {
      const held = silent().lock("l", { ttl: 300, renew }, (lock) => aborted(lock.signal));
      await assert.rejects(held, LockLost);
      await assert.rejects(silent().lock("l", { ttl: 300, renew }, () => {}), LockLost);
      await assert.rejects(silent().lock("l", { ttl: 300, renew }, (lock) => lock.set("row", "v")), LockLost);
      await assert.rejects(silent().lock("l", { ttl: 300, renew }, nobody), assert.AssertionError);
    }
  });
});

test("a signal waits for the end of the last renewal", { timeout: 20000 }, async () => {
  await alive(async () => {
    let extended = 0;
    const never = new Promise(() => {});
    const answer = (command) => (command === "LOCK" ? [9, 1] : command === "LOCKEXTEND" && extended++ < 1 ? 1 : never);
    const lock = await new Cache({ call: async (command) => answer(command) }).acquire("l", { ttl: 1500 });
    await aborted(lock.signal);
    assert.strictEqual(extended, 2);
    assert.strictEqual(lock.lost, true);
    await assert.rejects(lock.set("row", "v"), /nothing was written/);
    assert.strictEqual(await lock.release(), false);
  });
});

test("a loader's error does not wait for a server that is silent", { timeout: 20000 }, async () => {
  await alive(() => assert.rejects(silent().getOrLoad("k", nobody, { ttl: 1 }), assert.AssertionError));
});
