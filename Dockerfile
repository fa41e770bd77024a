# syntax=docker/dockerfile:1
# Builds basalt and puts the one binary into a slim image that runs as nobody's root.
#
#   docker build -t basalt . && docker run -p 6379:6379 -p 9121:9121 -v basalt-data:/data basalt

FROM rust:1.95-slim-trixie AS build
# jemalloc, Lua and the cryptography of TLS are compiled from C.
RUN apt-get update && apt-get install -y --no-install-recommends build-essential && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY src src
# Cargo wants to see the files of every target it knows, though it builds none of them here.
COPY benches benches
COPY tests tests
RUN cargo build --release --locked --bin basalt && strip target/release/basalt

FROM debian:trixie-slim
RUN useradd --system --uid 6379 --home-dir /data --shell /usr/sbin/nologin basalt \
    && mkdir /data && chown basalt:basalt /data
COPY --from=build /src/target/release/basalt /usr/local/bin/basalt
USER basalt
WORKDIR /data
# Snapshots and the append-only file; give the volume a name, so that the next container finds them.
VOLUME /data
EXPOSE 6379 9121
# /health over bash's own sockets: the image needs no curl for it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/9121 && printf 'GET /health HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["basalt"]
# A container is reached over its network: protected mode would refuse everybody.
CMD ["--bind", "0.0.0.0", "--protected-mode", "no", "--dir", "/data"]
