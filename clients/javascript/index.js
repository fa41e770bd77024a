// Leases, tags, locks with fences and rates of a basalt server, over ioredis or node-redis.
//
// No command waits inside the server: a command that waits blocks its connection, and in Node all requests share one,
// so that the command that would end the wait stands behind it.
"use strict";

const { randomUUID } = require("node:crypto");
const { setMaxListeners } = require("node:events");

const LONGEST_PAUSE_MS = 50;

/** How long a command that only tidies up is waited for at least. */
const GRACE_MS = 1000;

/** Timers that are longer end at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Any error of this package; `code` tells them apart. Errors of the client come through as they are. */
class BasaltError extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.name = this.constructor.name;
    this.code = code;
  }
}

/** Another client was loading the key for all of `wait`. */
class LoadTimeout extends BasaltError {}

/** Others held the lock for all of `wait`. */
class LockTimeout extends BasaltError {}

/** The lock is not held any more: its time was over, or somebody deleted it. */
class LockLost extends BasaltError {}

/** The server does not know the command: it is no basalt, or an older one. */
class UnsupportedServer extends BasaltError {}

const now = () => performance.now();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function whole(ms) {
  const rounded = Math.max(1, Math.ceil(ms));
  if (!Number.isFinite(rounded)) throw new TypeError(`${ms} is no time in milliseconds`);
  return rounded;
}

/** The answer; undefined where it takes longer than `ms`. What comes later is of no account, an error too. */
function within(ms, answer) {
  answer.catch(() => {});
  let timer;
  const end = new Promise((resolve) => {
    timer = setTimeout(resolve, Math.min(ms, LONGEST_TIMER_MS));
  });
  return Promise.race([answer, end]).finally(() => clearTimeout(timer));
}

/** Growing pauses, until the time to wait is over. */
class Patience {
  constructor(wait) {
    this.until = now() + wait;
    this.pause = 2;
  }

  /** Pauses; false once the time is over. */
  async goOn() {
    const left = this.until - now();
    if (left <= 0) return false;
    // Each client draws its own pause, so that clients that began together do not come back together.
    await sleep(Math.min(this.pause * (0.5 + Math.random() / 2), left));
    this.pause = Math.min(this.pause * 1.6, LONGEST_PAUSE_MS);
    return true;
  }
}

/** Clients take strings and Buffers; what else there is has no form that could be read again. */
function word(value) {
  if (typeof value === "string" || Buffer.isBuffer(value)) return value;
  if (typeof value === "number") return String(value);
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  const kind = value === null || value === undefined ? value : (value.constructor?.name ?? typeof value);
  throw new TypeError(`neither text, bytes nor a number, but ${kind}: write it as text, by JSON.stringify for example`);
}

/** How a client sends words: to the node of a key, and to all primaries. */
function transport(client) {
  const options = client.options ?? {};
  if (options.keyPrefix || options.redisOptions?.keyPrefix) {
    // Clients put it before the keys of commands that they know, and so not before those of LGET or LOCK.
    throw new TypeError("a client with keyPrefix: write the prefix into the keys");
  }
  if (typeof client.call === "function") {
    // ioredis; a cluster of it has nodes().
    const call = (node, words) => node.call(...words);
    const primaries = typeof client.nodes === "function" ? () => client.nodes("master") : () => [client];
    return {
      send: (key, words) => call(client, words),
      sendToAll: (words) => Promise.all(primaries().map((node) => call(node, words))),
    };
  }
  if (Array.isArray(client.masters)) {
    // A cluster of node-redis.
    const toOne = async (master, words) => (await client.nodeClient(master)).sendCommand(words);
    return {
      send: (key, words) => client.sendCommand(word(key), false, words),
      sendToAll: (words) => Promise.all(client.masters.map((master) => toOne(master, words))),
    };
  }
  if (typeof client.sendCommand !== "function") throw new TypeError("neither a client of ioredis nor of node-redis");
  return {
    send: (key, words) => client.sendCommand(words),
    sendToAll: async (words) => [await client.sendCommand(words)],
  };
}

function named(error, command) {
  if (!/unknown command/i.test(error?.message ?? "")) return error;
  return new UnsupportedServer("UNSUPPORTED", `this server has no ${command}: is it basalt?`, { cause: error });
}

const isForeign = (error) => /^NOTOWNER/.test(error?.message ?? "");

function marks(stale, tags) {
  const words = stale ? ["STALE", whole(stale)] : [];
  return tags.length ? [...words, "TAGS", tags.length, ...tags] : words;
}

const expiry = (ttl) => (ttl === undefined ? [] : ["PX", whole(ttl)]);

/** A lock that is held. */
class Lock {
  #cache;
  #validUntil = 0;
  #lost = new AbortController();
  #renewal;
  #end;
  #isReleased = false;

  constructor(cache, name, ttl) {
    this.#cache = cache;
    // One for each `set` under way.
    setMaxListeners(0, this.#lost.signal);
    this.name = name;
    this.ttl = ttl;
    /** New for each attempt, so that a release never ends another's lock. */
    this.owner = randomUUID();
    /** Larger with each owner; `set` shows it to the server. */
    this.fence = 0;
  }

  /** Whether the lock may be another's by now, as far as this side can know. */
  get lost() {
    if (now() >= this.#validUntil) this.#giveUp();
    return this.#isReleased || this.#lost.signal.aborted;
  }

  /** Aborted once the lock is known to be lost, or its time is over: whatever the server does, or does not. */
  get signal() {
    return this.#lost.signal;
  }

  /** Throws LockLost if the lock may be another's by now. */
  check() {
    if (this.lost) throw this.#error("ran out");
  }

  /** Writes a key while the lock is held, in one step on the server; else throws LockLost. */
  async set(key, value, { ttl } = {}) {
    if (this.lost) throw this.#error("ran out: nothing was written");
    const words = ["SET", key, value, ...expiry(ttl), "FENCE", this.name, this.fence];
    if ((await this.#whileHeld(this.#cache._call(key, words))) !== null) return;
    this.#giveUp();
    throw this.#error("ran out: nothing was written");
  }

  /** The answer of the server; throws once the lock is lost. */
  #whileHeld(answer) {
    return new Promise((resolve, reject) => {
      const end = () => reject(this.#error("ran out before the server answered"));
      const settle = (how) => (result) => {
        this.signal.removeEventListener("abort", end);
        how(result);
      };
      this.signal.addEventListener("abort", end, { once: true });
      answer.then(settle(resolve), settle(reject));
    });
  }

  /** Releases it; whether it was ours up to now. Settles when the lock has ended at the latest, or a second later. */
  async release() {
    this.#isReleased = true;
    // A renewal under way is not waited for: it may be late, and extends nothing that is released.
    clearTimeout(this.#renewal);
    clearTimeout(this.#end);
    const left = this.#validUntil - now();
    this.#validUntil = 0;
    return (await within(Math.max(left, GRACE_MS), this.#unlock())) === true;
  }

  async #unlock() {
    try {
      // A client that sends LOCK twice because a connection broke holds the lock twice.
      while (Number(await this.#cache._call(this.name, ["UNLOCK", this.name, this.owner])) > 0);
      return true;
    } catch (error) {
      if (isForeign(error)) return false;
      throw error;
    }
  }

  async _acquire(wait) {
    const patience = new Patience(wait);
    try {
      do {
        const sent = now();
        const answer = await this.#cache._call(this.name, ["LOCK", this.name, this.owner, whole(this.ttl)]);
        if (answer !== null) {
          this.fence = Number(answer[0]);
          this.#countFrom(sent);
          return this;
        }
      } while (await patience.goOn());
    } catch (error) {
      // The command may have been executed though its reply never came.
      if (!(error instanceof UnsupportedServer)) await this.release().catch(() => {});
      throw error;
    }
    throw new LockTimeout("LOCK_TIMEOUT", `others held the lock ${this.name} for ${wait} ms`);
  }

  /** Extends the lock three times within its ttl, until `maxHold` is over or it is lost. */
  _renew(maxHold) {
    const until = now() + maxHold;
    const extend = async () => {
      const sent = now();
      try {
        await this.#cache._call(this.name, ["LOCKEXTEND", this.name, this.owner, whole(this.ttl)]);
        this.#countFrom(sent);
      } catch (error) {
        // Without a connection it tries again until the lock has run out.
        if (isForeign(error)) this.#giveUp();
      }
    };
    const next = () => {
      const work = async () => {
        if (!this.lost && now() < until) await extend();
        if (!this.lost) next();
      };
      this.#renewal = setTimeout(work, Math.min(this.ttl / 3, LONGEST_TIMER_MS));
      this.#renewal.unref?.();
    };
    next();
  }

  #countFrom(sent) {
    // The server counts from when the command came. The margin is for clocks that run at different speeds.
    this.#validUntil = sent + this.ttl * 0.99 - 1;
    this.#watch();
  }

  /** Aborts the signal at the end, whatever commands are under way. */
  #watch() {
    clearTimeout(this.#end);
    if (this.lost) return;
    this.#end = setTimeout(() => this.#watch(), Math.min(this.#validUntil - now(), LONGEST_TIMER_MS));
    this.#end.unref?.();
  }

  #giveUp() {
    if (!this.#isReleased && !this.#lost.signal.aborted) this.#lost.abort(this.#error("ran out"));
  }

  #error(what) {
    return new LockLost("LOCK_LOST", `the lock ${this.name} ${what}`);
  }
}

/** Commands of basalt on a client of ioredis or node-redis. One client with one connection serves all requests. */
class Cache {
  #transport;
  #isStoring = true;

  constructor(client) {
    this.client = client;
    this.#transport = transport(client);
  }

  /**
   * The value of a key. Where it is missing, `load(key)` is called by one client at a time, and stored for `ttl` ms.
   * A loader that answers null or undefined stores nothing; what is neither text, bytes nor a number is a TypeError.
   * What the server will not store is answered all the same; the first time with a warning.
   */
  async getOrLoad(key, load, { ttl, stale = 0, lease = 5000, wait = 10000, tags = [] }) {
    // Before a lease is taken, as what is wrong here is the caller's error.
    const how = ["PX", whole(ttl), ...marks(stale, tags)].map(word);
    const patience = new Patience(wait);
    let token;
    for (;;) {
      const [value, , given] = await this._call(key, ["LGET", key, "LEASE", whole(lease)]);
      // ioredis answers texts in place of numbers where it was told to.
      token = Number(given);
      if (token !== 0) break;
      if (value !== null) return value;
      if (!(await patience.goOn())) {
        throw new LoadTimeout("LOAD_TIMEOUT", `another client was loading ${key} for ${wait} ms`);
      }
    }
    let isOver = false;
    try {
      const loaded = await load(key);
      if (loaded === null || loaded === undefined) return null;
      const stored = word(loaded);
      try {
        // An answer of 0 means that the key changed meanwhile: this caller still has what it asked for.
        await this._call(key, ["LFILL", key, token, stored, ...how]);
        isOver = this.#isStoring = true;
      } catch (error) {
        // Memory or disk are full, say. This caller has its value all the same, and so will those who wait.
        this.#warn(key, error);
      }
      return stored;
    } finally {
      // Whatever happened, the next one may load at once, and not when the lease is over. An error here must not hide
      // the loader's.
      if (!isOver) await within(GRACE_MS, this._call(key, ["LDROP", key, token])).catch(() => {});
    }
  }

  /** Says the first of many times that nothing is stored. */
  #warn(key, error) {
    if (this.#isStoring) process.emitWarning(`${key} was loaded but not stored: ${error.message}`, "BasaltWarning");
    this.#isStoring = false;
  }

  /** Stores a value with tags and a stale window. */
  async set(key, value, { ttl, stale = 0, tags = [] } = {}) {
    await this._call(key, ["SET", key, value, ...expiry(ttl), ...marks(stale, tags)]);
  }

  /** Gives a key of any type further tags; how many it did not have. */
  async tag(key, ...tags) {
    return Number(await this._call(key, ["TAG", "ADD", key, ...tags]));
  }

  /** Deletes all keys that have any of the tags, on all primaries of a cluster; how many. */
  async invalidate(...tags) {
    if (tags.length === 0) return 0;
    const words = ["TAG", "INVALIDATE", ...tags].map(word);
    try {
      const answers = await this.#transport.sendToAll(words);
      return answers.reduce((sum, answer) => sum + Number(answer), 0);
    } catch (error) {
      throw named(error, "TAG");
    }
  }

  /** Counts a request: `count` in `period` seconds may come, and `burst` more at once. */
  async throttle(key, { burst, count, period, quantity = 1 }) {
    const answer = await this._call(key, ["CL.THROTTLE", key, burst, count, period, quantity]);
    const [limited, limit, remaining, retryAfter, resetAfter] = answer.map(Number);
    return { limited: limited === 1, limit, remaining, retryAfter: retryAfter < 0 ? null : retryAfter, resetAfter };
  }

  /** Takes a lock, to be released by `lock.release()`. */
  async acquire(name, { ttl = 30000, wait = 10000, renew = true, maxHold = 600000 } = {}) {
    const lock = await new Lock(this, name, ttl)._acquire(wait);
    if (renew) lock._renew(maxHold);
    return lock;
  }

  /** Runs `work(lock)` with a lock, and releases it. Throws LockLost where it was lost before the work had ended. */
  async lock(name, options, work) {
    if (typeof options === "function") [options, work] = [{}, options];
    const lock = await this.acquire(name, options);
    let result;
    try {
      result = await work(lock);
    } catch (error) {
      // The error of the work is the one that its caller has to see.
      await lock.release().catch(() => {});
      throw error;
    }
    if (await lock.release()) return result;
    throw new LockLost("LOCK_LOST", `the lock ${name} was lost before its work had ended`);
  }

  async _call(key, words) {
    try {
      return await this.#transport.send(key, words.map(word));
    } catch (error) {
      throw named(error, words[0]);
    }
  }
}

module.exports = { BasaltError, Cache, LoadTimeout, Lock, LockLost, LockTimeout, UnsupportedServer };
