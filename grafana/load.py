"""What a service and its operators do to a cache, for pictures: reads and writes, messages, queues, mistakes, saves, a
replica that breaks. Wants redis-benchmark, and redis from PyPI."""
import math, random, signal, subprocess, threading, time
from concurrent.futures import ThreadPoolExecutor

import redis


class Load:
    """Each method is one thread."""

    def __init__(self, watched, seconds):
        self.watched, self.seconds, self.begun = watched, seconds, time.time()

    def client(self, server="primary"):
        return redis.Redis(port=self.watched.ports[server])

    def each(self, period):
        """The share of the whole time that has passed, again after each period."""
        while (passed := time.time() - self.begun) < self.seconds:
            yield passed / self.seconds
            time.sleep(period)

    def run(self):
        self.client().config_set("slowlog-log-slower-than", 3000)
        used = self.client().info("memory")["used_memory"]
        self.client().config_set("maxmemory", used + (13 << 20))
        self.client().config_set("maxmemory-policy", "allkeys-lru")
        jobs = [self.cache, self.cache, self.tools, self.messages, self.queue, self.faults, self.operator]
        with ThreadPoolExecutor(len(jobs)) as pool:
            for job in [pool.submit(job) for job in jobs]:
                job.result()

    def cache(self):
        """Reads by a Zipf-like choice of keys; what is not there is stored, most of it with a deadline."""
        client, chance = self.client(), random.Random()
        for at in self.each(0.1):
            number = int(130 + 90 * math.sin(at * 14) + (220 if 0.55 < at < 0.68 else 0))
            keys = [f"page:{int(40000 * chance.random() ** 4)}" for _ in range(number)]
            with client.pipeline(transaction=False) as pipe:
                found = [pipe.get(key) for key in keys] and pipe.execute()
                for key, value in zip(keys, found):
                    if value is None:
                        size = min(int(chance.lognormvariate(6, 0.9)), 40000)
                        pipe.set(key, "x" * size, ex=chance.choice([None, 5, 15, 40]))
                pipe.execute()

    def tools(self):
        """Bursts of redis-benchmark, each of another kind, and a fleet of connections for a while."""
        kinds = ["incr", "lpush,lpop", "sadd,spop", "hset", "zadd,zpopmin", "mset", "set,get"]
        for turn, at in enumerate(self.each(1.0)):
            clients = 60 if 0.35 < at < 0.6 else 10
            number = int(2500 + 2000 * math.sin(at * 9))
            call = ["redis-benchmark", "-p", str(self.watched.ports["primary"]), "-q", "-n", str(number), "-r", "2000",
                    "-c", str(clients), "-P", "4", "-t", kinds[turn // 3 % len(kinds)]]
            subprocess.run(call, stdout=subprocess.DEVNULL)

    def messages(self):
        listener = self.client().pubsub()
        listener.subscribe("news")
        client = self.client()
        for at in self.each(0.1):
            with client.pipeline(transaction=False) as pipe:
                [pipe.publish("news", "story " * 20) for _ in range(int(12 + 10 * math.sin(at * 20)))]
                pipe.execute()
            while listener.get_message(timeout=0):
                pass

    def queue(self):
        """A worker that waits for tasks, who brings them, transactions and scripts on one shard and on several."""
        worker, client, chance = self.client(), self.client(), random.Random()
        move = client.register_script("redis.call('incr', KEYS[1]) return redis.call('hincrby', KEYS[2], 'n', 1)")
        stray = client.register_script("return redis.call('incr', 'total:' .. ARGV[1])")
        stop = threading.Event()

        def work():
            while not stop.is_set():
                worker.blpop("tasks", timeout=1)
        threading.Thread(target=work, daemon=True).start()
        for at in self.each(0.15):
            one, other = chance.randrange(500), chance.randrange(500)
            client.rpush("tasks", "task")
            move(keys=[f"count:{one}", f"stats:{other}"])
            stray(args=[one])
            with client.pipeline(transaction=True) as pipe:
                pipe.decr(f"account:{one}").incr(f"account:{other}").execute()
            with client.pipeline(transaction=True) as pipe:
                pipe.zadd("board", {f"player {one}": other}).zrevrange("board", 0, 9).execute()
        stop.set()

    def faults(self):
        """Mistakes of programs: unknown commands, wrong types, wrong numbers of arguments, keys that are not there."""
        client, chance = self.client(), random.Random()
        client.lpush("a-list", "x")
        wrong = [("GET", "a-list"), ("NOSUCH",), ("GET",), ("EVALSHA", "0" * 40, 0), ("INCR", "word")]
        client.set("word", "not a number")
        for at in self.each(0.2):
            for _ in range(chance.randrange(3 if at < 0.7 else 9)):
                try:
                    client.execute_command(*chance.choice(wrong))
                except redis.RedisError:
                    pass
                client.get(f"absent:{chance.random()}")

    def operator(self):
        """A large value, slow commands, saves, a rewrite, a second replica, a link that breaks."""
        client = self.client()
        client.sadd("big", *range(20000))
        client.hset("report", mapping={f"field {i}": "y" * 30 for i in range(3000)})
        plan = [(0.2, client.bgsave), (0.3, lambda: self.watched.start_replica("second")),
                (0.45, client.bgrewriteaof), (0.56, self.stall),
                (0.7, lambda: client.execute_command("CLIENT", "KILL", "TYPE", "replica")), (0.8, client.bgsave)]
        slow = "local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i end return n"
        for turn, at in enumerate(self.each(1.0)):
            while plan and plan[0][0] <= at:
                plan.pop(0)[1]()
            if turn % 9 == 4:
                client.eval(slow, 0, 200000 * (turn % 7 + 1))
            if turn % 20 == 7:
                client.sort("big", start=0, num=10, desc=True)
            if turn % 5 == 1:
                client.append("blob", "z" * 6000)

    def stall(self):
        """The second replica stands still for a while, and falls behind."""
        process = self.watched.processes["second"]
        process.send_signal(signal.SIGSTOP)
        threading.Timer(2, process.send_signal, [signal.SIGCONT]).start()
