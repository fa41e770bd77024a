"""redis-py over TLS with a certificate: PORT FOLDER, where the folder has ca.crt, client.crt and client.key."""
import asyncio, sys, time

import redis
import redis.asyncio

port, folder = int(sys.argv[1]), sys.argv[2]
tls = dict(host="localhost", port=port, ssl=True, ssl_ca_certs=f"{folder}/ca.crt", ssl_certfile=f"{folder}/client.crt",
           ssl_keyfile=f"{folder}/client.key", socket_timeout=60)
for protocol in (2, 3):
    client = redis.Redis(**tls, **({"protocol": protocol} if int(redis.__version__.split(".")[0]) >= 5 else {}))
    assert client.set("key", b"v" * 300_000) and client.get("key") == b"v" * 300_000
    pipeline = client.pipeline(transaction=protocol == 2)
    for number in range(1_000):
        pipeline.set(f"key:{number}", number).get(f"key:{number}")
    assert pipeline.execute()[1::2] == [str(number).encode() for number in range(1_000)]
    messages = client.pubsub()
    messages.subscribe("news")
    assert messages.get_message(timeout=60)["type"] == "subscribe"
    assert client.publish("news", "hello") == 1
    assert messages.get_message(timeout=60)["data"] == b"hello"
    # Killed, it connects anew by itself, and so does the subscriber.
    killer = redis.Redis(**tls)
    for identity in [row["id"] for row in client.client_list()]:
        if int(identity) != killer.client_id():
            killer.client_kill_filter(_id=identity)
    for _ in range(100):
        try:
            assert client.get("key:7") == b"7"
            break
        except redis.ConnectionError:
            time.sleep(0.05)
    else:
        sys.exit("it does not come back")
    while True:
        try:
            message = messages.get_message(timeout=60)
        except redis.ConnectionError:
            continue
        if message and message["type"] == "subscribe":
            break
    assert client.publish("news", "again") == 1
    assert messages.get_message(timeout=60)["data"] == b"again"
    messages.close()

bare = redis.Redis(host="localhost", port=port, ssl=True, ssl_ca_certs=f"{folder}/ca.crt")
try:
    bare.ping()
    sys.exit("served without a certificate")
except redis.ConnectionError:
    pass


async def many():
    client = redis.asyncio.Redis(**tls)
    assert await asyncio.gather(*[client.incr("count") for _ in range(50)])
    assert await client.get("count") == b"50"
    await client.connection_pool.disconnect()


asyncio.run(many())
print(f"redis-py {redis.__version__}")
