# What can be done here, for `just` (https://just.systems); without it each line runs as it stands.

# List the tasks.
default:
    @just --list

# Format, lints and the source's own rules: what each commit must pass first.
check:
    cargo fmt --all -- --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo test -q --test tidy

# Start a server to play with.
play *ARGS:
    cargo run -- --port 7000 --metrics-port 0 --save '' {{ARGS}}

# Run the tests whose names contain NAME, of all crates and programs.
test NAME:
    cargo test {{NAME}}

# Run all tests; one that fails among the others is run once more alone.
tests:
    BASALT_REQUIRE_ORACLE=1 .ci/tests

# Run the black-box tests whose names contain NAME against another build.
against BINARY NAME='':
    BASALT_BINARY={{BINARY}} cargo test --test blackbox {{NAME}}

# Record transcripts and COMMAND INFO's rows anew from the servers that are installed.
bless NAME='transcripts':
    BLESS=1 cargo test --test blackbox {{NAME}}

# Run a bench; without ARGS it says what it takes.
bench NAME *ARGS='--help':
    cargo bench --bench {{NAME}} -- {{ARGS}}

# Build for `perf`: optimized, incremental, with symbols.
fast:
    cargo build --profile fast

# Everything that must hold for a commit, from a clean clone: 45 minutes on two cores.
ci:
    .ci/run

# The Debian package and the image, installed and run in a clean root.
package:
    .ci/package

# The console in a browser, and `basalt top`.
console:
    .ci/console
