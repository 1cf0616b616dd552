# Every command a person or CI runs. `just` alone lists them.

[private]
default:
    @just --list --unsorted

# Format, lints, docs and tests; CI does more (.ci/run)
check: fmt-check lint doc test

fmt:
    cargo fmt --all

fmt-check:
    cargo fmt --all --check
    cargo fmt --manifest-path bench/Cargo.toml --check

lint:
    cargo clippy --workspace --all-targets --all-features -- -D warnings

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features

# The mounted tests run as root, and say that they were skipped elsewhere
test:
    cargo test --workspace --all-features

# The mounted tests must run: a skip is a failure
test-mounted:
    PLIMSOLL_REQUIRE=realfs cargo test --workspace --all-features

# Type-check for the systems we have no machine for
check-targets:
    rustup target add x86_64-apple-darwin aarch64-apple-darwin x86_64-pc-windows-gnu x86_64-unknown-freebsd
    for target in x86_64-apple-darwin aarch64-apple-darwin x86_64-pc-windows-gnu x86_64-unknown-freebsd; do \
        cargo check --workspace --target $target || exit 1; \
    done

# Makes the header of the C library from its sources
c-header:
    PLIMSOLL_WRITE_HEADER=1 cargo test -p plimsoll-capi --test header -- the_header_is_what

# Installs the C library, its header and its pkg-config file (needs install(1))
c-install prefix:
    crates/capi/install {{prefix}}

# Builds the Python wheel and runs its tests
python:
    python/test

# The driver of the worked examples, and power cuts of SQLite and of the broker (as root)
examples:
    cargo build -p plimsoll
    examples/test

# Clients that nobody here wrote against the broker: kcat, python, go, node, java, or all of them
clients *which:
    cargo build -p plimsoll
    clients/test {{which}}

# The same against three brokers, of which the one that leads is stopped and killed
clients-of-three *which:
    cargo build -p plimsoll
    clients/test --cluster {{which}}

# What happens to a cluster, as docs/operating.md tells it (as root)
operating *more:
    cargo build -p plimsoll
    clients/operating --doc docs/operating.md {{more}}

# What each client shows its user when a majority of three brokers forgot (as root)
loss *which:
    cargo build -p plimsoll
    clients/loss {{which}}

# Three brokers under faults that a seed draws, and under clients that go on (as root)
chaos minutes="5" *more:
    cargo build -p plimsoll
    clients/chaos --minutes {{minutes}} {{more}}

# Kills the broker so many times under clients that go on
kill-broker kills="1000":
    cargo build -p plimsoll
    clients/kills {{kills}}

# Three brokers of another build, a program `plimsoll`, become three of this one, under clients
upgrade old:
    cargo build -p plimsoll
    clients/upgrade {{old}}

# Power cuts of a broker whose chapters are small, so many states of ext4, xfs and btrfs each (as root, with kafka-python)
chapter-cuts states="3000":
    cargo build --release -p plimsoll
    PLIMSOLL="${CARGO_TARGET_DIR:-$PWD/target}/release/plimsoll" examples/broker/chapters_cuts --states {{states}} -o target/chapter-cuts

# Instructions of the log's hot paths against those recorded (needs valgrind)
instructions:
    .ci/instructions

# What the mounted disk costs, on a quiet machine, as root
rig-cost:
    cargo build --release -p plimsoll-simdisk --features mounted --example rig_cost
    target/release/examples/rig_cost

# Licences, bans and duplicate versions (needs cargo-deny)
deny:
    cargo deny check bans licenses sources

# Measures this disk
lab:
    cargo run --release -- lab

# Compares the lab with fio on a quiet machine
compare-fio:
    cargo build --release
    bench/compare-fio.py > docs/fio-comparison.md

# Measures the broker beside Kafka, half an hour on a quiet machine, and renders docs/broker-benchmarks.md
broker-field *args:
    bench/broker/run {{args}}

# Measures three brokers beside three of Kafka on a quiet machine, and renders docs/cluster-benchmarks.md
cluster-field *args:
    bench/broker/cluster {{args}}

# Measures chapters beside Kafka, about an hour on a quiet machine, as root, and renders docs/chapters-benchmarks.md
chapters-field *args:
    bench/broker/chapters {{args}}

# Measures the log beside its rivals, half an hour on a quiet machine, and renders docs/benchmarks.md
field *args:
    bench/run {{args}}

# Longest files, for a look; fails nothing
sizes:
    @git ls-files '*.rs' | xargs wc -l | sort -rn | head -20

# Kills a process so many times at each level
kill kills="3000":
    PLIMSOLL_KILLS={{kills}} cargo test --release -p plimsoll-log --test kill -- --nocapture

# Visits so many crash points, in two threads
points points="100000":
    PLIMSOLL_POINTS={{points}} PLIMSOLL_JOBS=2 GLIBC_TUNABLES=glibc.malloc.mmap_threshold=1048576 \
        cargo test --release -p plimsoll-log --test simulation every_moment -- --nocapture

# Plants each known bug in a copy of the log: the simulation must find it
mutants names="all":
    PLIMSOLL_MUTANTS={{names}} cargo test -p plimsoll-log --test mutants is_found -- --nocapture

# Bugs that are planted in the broker, each of which its simulation must find: all, or some by name
broker-mutants names="all":
    PLIMSOLL_MUTANTS={{names}} cargo test -p plimsoll-server --test mutants is_found -- --nocapture

# Power cuts of the log on ext4, xfs and btrfs, so many states of each (as root)
power-cuts states="10000":
    PLIMSOLL_REQUIRE=realfs PLIMSOLL_STATES={{states}} \
        cargo test --release -p plimsoll-log --features mounted --test power_cut -- --nocapture

# What a failed sync says and keeps on ext4, xfs and btrfs (as root)
failed-sync:
    PLIMSOLL_REQUIRE=realfs \
        cargo test -p plimsoll-simdisk --features mounted --test failed_sync -- --nocapture

# The log's interleavings, so many schedules a test
interleavings iterations="300":
    PLIMSOLL_ITERATIONS={{iterations}} RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle \
        cargo test -p plimsoll-log --test interleavings

# Undefined behaviour in what needs no system call but for time (needs nightly and miri)
miri:
    MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=8 \
        cargo +nightly miri test -p plimsoll-log --lib -- format ring watermark list place
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p plimsoll-sync --lib -- aligned words

# A thread of `verify` that is just ending looks like a leak, so leaks are not looked for.
# Fuzzes a target of fuzz/fuzz_targets for so many seconds (needs nightly and cargo-fuzz)
fuzz target seconds="300":
    cargo +nightly fuzz run {{target}} -- -max_total_time={{seconds}} -max_len=8192 -detect_leaks=0
