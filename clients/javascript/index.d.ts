/** Text, bytes, or a number, which is stored as text. Anything else is a TypeError. */
export type Value = string | Uint8Array | number;

/** A client of ioredis or node-redis, or a cluster of either; connected. */
export type Client =
  | { call(command: string, ...words: any[]): Promise<unknown> }
  | { sendCommand(...words: any[]): Promise<unknown> };

/** Any error of this package. Errors of the client come through as they are. */
export class BasaltError extends Error {
  readonly code: "LOAD_TIMEOUT" | "LOCK_TIMEOUT" | "LOCK_LOST" | "UNSUPPORTED";
}
/** Another client was loading the key for all of `wait`. */
export class LoadTimeout extends BasaltError {}
/** Others held the lock for all of `wait`. */
export class LockTimeout extends BasaltError {}
/** The lock is not held any more: its time was over, or somebody deleted it. */
export class LockLost extends BasaltError {}
/** The server does not know the command: it is no basalt, or an older one. */
export class UnsupportedServer extends BasaltError {}

/** All times are in milliseconds. */
export interface StoreOptions {
  ttl?: number;
  /** For so long behind `ttl` one client loads anew, and all others are answered the old value. */
  stale?: number;
  tags?: Value[];
}

export interface LoadOptions extends StoreOptions {
  ttl: number;
  /** The longest that a load may take (5000). */
  lease?: number;
  /** The longest that others wait for it (10000); then LoadTimeout. */
  wait?: number;
}

export interface LockOptions {
  /** How long the lock is held without being extended (30000). */
  ttl?: number;
  /** The longest that others are waited for (10000); then LockTimeout. */
  wait?: number;
  /** Extend it three times within `ttl` while it is held (true). */
  renew?: boolean;
  /** No more after so long (600000). */
  maxHold?: number;
}

export interface Rate {
  /** The request is one too many. */
  limited: boolean;
  /** Requests that may come at once. */
  limit: number;
  /** Requests that may still come now. */
  remaining: number;
  /** Seconds until the next request may come; null if one may come now. */
  retryAfter: number | null;
  /** Seconds until `limit` requests may come at once again. */
  resetAfter: number;
}

/** A lock that is held. */
export class Lock {
  private constructor();
  readonly name: string;
  readonly owner: string;
  /** Larger with each owner. */
  readonly fence: number;
  readonly ttl: number;
  /** Whether the lock may be another's by now, as far as this side can know. */
  readonly lost: boolean;
  /** Aborted once the lock is known to be lost, or its time is over: whatever the server does, or does not. */
  readonly signal: AbortSignal;
  /** Throws LockLost if the lock may be another's by now. */
  check(): void;
  /** Writes a key while the lock is held, in one step on the server; else throws LockLost. */
  set(key: string, value: Value, options?: { ttl?: number }): Promise<void>;
  /** Releases it; whether it was ours up to now. Settles when the lock has ended at the latest, or a second later. */
  release(): Promise<boolean>;
}

/** Commands of basalt on a client of ioredis or node-redis. One client with one connection serves all requests. */
export class Cache {
  constructor(client: Client);
  readonly client: Client;
  /**
   * The value of a key. Where it is missing, `load(key)` is called by one client at a time, and stored for `ttl` ms.
   * A loader that answers null or undefined stores nothing. Who loads gets what was stored: text (of a number, too), or
   * a Buffer of bytes; others get what the client reads, which is text if nothing else was set up.
   * What the server will not store is answered all the same; the first time with a warning.
   */
  getOrLoad<T extends Value>(
    key: string,
    load: (key: string) => Promise<T | null | undefined> | T | null | undefined,
    options: LoadOptions,
  ): Promise<string | (T extends Uint8Array ? Buffer : never) | null>;
  /** Stores a value with tags and a stale window. */
  set(key: string, value: Value, options?: StoreOptions): Promise<void>;
  /** Gives a key of any type further tags; how many it did not have. */
  tag(key: string, ...tags: Value[]): Promise<number>;
  /** Deletes all keys that have any of the tags, on all primaries of a cluster; how many. */
  invalidate(...tags: Value[]): Promise<number>;
  /** Counts a request: `count` in `period` seconds may come, and `burst` more at once. */
  throttle(key: string, rate: { burst: number; count: number; period: number; quantity?: number }): Promise<Rate>;
  /** Takes a lock, to be released by `lock.release()`. */
  acquire(name: string, options?: LockOptions): Promise<Lock>;
  /** Runs `work(lock)` with a lock, and releases it. Throws LockLost where it was lost before the work had ended. */
  lock<T>(name: string, work: (lock: Lock) => Promise<T> | T): Promise<T>;
  lock<T>(name: string, options: LockOptions, work: (lock: Lock) => Promise<T> | T): Promise<T>;
}
