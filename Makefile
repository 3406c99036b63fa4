# CONTRIBUTING.md describes the targets.

TARGET := $(or $(CARGO_TARGET_DIR),target)
E3 := $(TARGET)/release/e3
ARM := aarch64-unknown-linux-gnu
TEST_FEATURES := e3-nemesis/deliberate-faults,e3-cli/formats,e3-cli/clock-offset

.PHONY: help setup services e3 demo test bench nemesis fix aarch64 test-aarch64 clean

help:
	@echo "make setup | demo | test | bench | nemesis | fix | aarch64 | test-aarch64 | clean"

setup:
	@scripts/setup

services: setup
	cargo xtask build-services

e3: services
	cargo build --release -p e3-cli

demo: e3
	$(E3) demo

# tests fail without the solver HiGHS, the checker of histories and nftables, unless they are told that the set-up
# could not install them, or that this machine has no network namespaces in which nftables work
# one build for all tests: it has the deliberate faults, other formats and wrong clocks, which a test turns on; the
# product has none of them
# the tests that take longest mostly wait for a cluster: three of them run at a time on two cores
test: services
	@scripts/setup --checks
	cargo xtask check
	@test -n "$$E3_HIGHS" -o -x $(TARGET)/checks/bin/highs || echo "SKIPPED: the bound on placements needs HiGHS"
	E3_WITHOUT_HIGHS=$$(test -x $(TARGET)/checks/bin/highs || echo 1) \
	E3_WITHOUT_CHECKER=$$(test -x $(TARGET)/linearizability || echo 1) \
	E3_WITHOUT_NFTABLES=$$(unshare --net nft add table inet e3 2>/dev/null || echo 1) \
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$(($$(nproc) * 3 / 2))} \
	cargo test --workspace --features $(TEST_FEATURES)

# in one build, so that no crate is built with two sets of features; a missed aim stops no other group
bench: services
	cargo build --release -p e3-cli -p e3-native
	@missed=; for group in engine services demo control state sim; do \
		echo "$(E3) bench $$group"; \
		$(E3) bench $$group --write docs/benchmarks.md || missed="$$missed $$group"; \
	done; \
	test -z "$$missed" || { echo "failed:$$missed"; exit 1; }

# for runs of many seeds
nemesis:
	@scripts/nemesis

fix: setup
	cargo xtask fix

# Kernels for ARM have pages of 4 to 64 KiB; an allocator built for 64 KiB runs on all.
aarch64:
	@scripts/setup --aarch64
	JEMALLOC_SYS_WITH_LG_PAGE=16 \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
	cargo build --release -p e3-cli --target $(ARM)

# on a cluster with a node of ARM, whose program QEMU runs
test-aarch64: services aarch64
	E3_AARCH64=$(abspath $(TARGET))/$(ARM)/release/e3 \
	cargo test --workspace --features $(TEST_FEATURES) --test all -- aarch64

clean:
	cargo clean
