# syntax=docker/dockerfile:1
# Builds basalt and puts the one binary into a slim image. The arguments are those of the official Redis image:
#
#   docker build -t basalt . && docker run -p 6379:6379 -p 9121:9121 -v basalt-data:/data basalt --maxmemory 1gb

FROM rust:1.95-slim-trixie AS build
# jemalloc, Lua and the cryptography of TLS are compiled from C.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends build-essential && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY src src
# Cargo wants to see the files of every target it knows, though it builds none of them here.
COPY benches benches
COPY tests tests
RUN cargo build --release --locked --bin basalt && strip --strip-debug target/release/basalt

FROM debian:trixie-slim
COPY packaging/docker/install /tmp/install
RUN /tmp/install && rm /tmp/install
COPY packaging/docker/entrypoint packaging/docker/health /usr/local/lib/basalt/
COPY --from=build /src/target/release/basalt /usr/local/bin/basalt
WORKDIR /data
# Snapshots and the append-only file; give the volume a name, so that the next container finds them.
VOLUME /data
EXPOSE 6379 9121
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["/usr/local/lib/basalt/health"]
# As root it steps down to the user basalt; `--user` and `runAsUser` may name any other.
ENTRYPOINT ["/usr/local/lib/basalt/entrypoint"]
