# The project's commands. Those of more than a line are scripts in tools/ or pg_test/; this file has their order
# and their names.
#
#   make setup               installs prerequisites (Debian packages); existing ones are not changed
#   make                     release build of the extension; POINTS=1: with the tests' wait points and fault points
#   make install             into the server of PG_CONFIG (DESTDIR is supported)
#   make deb                 a Debian package for that server, in target/deb; deb-check: a bare Debian installs it and loads a file;
#                            deb-again: a build in another directory gives the same bytes
#   make dist                the source and its crates in an archive that builds offline, in target/dist; dist-check: builds it
#   make installcheck        the server tests, for the installed extension; TESTS="smoke t/001_x.t" picks some
#   make test-core           core's own tests of COPY and file_fdw, run with pg_bulk: pg_test/core/README.md; SUITES=all: all of core's
#   make test-engines        beside TimescaleDB, Citus and others, whose sources are in ENGINES=DIR: pg_test/engines/run; TESTS=t/citus.t picks some
#   make demo                a running cluster with the seed workloads loaded by COPY and by pg_bulk; SIZE=n
#   make test                all checks of the project, starting from an empty machine; CASSERT=1: the server tests on
#                            a server with assertions, which is built first; ALSO_CASSERT=1: some of them there; ALSO=17: at the end a part
#                            of the server tests on that version, or those in ALSO_TESTS
#   make bench               side by side with COPY and others: benches/load/run; SIZE=small|seed|full, WORKLOADS=, MODES=; BASE=REF: two builds
#   make profile             the time of a load by stage and by function: benches/load/profile; WORKLOAD=test
#   make soak                sanitizers, valgrind, fuzzing, assertions, half an hour of random schedules, large grids: tools/soak; STAGES="asan fuzz"
#   make faults              plants faults into a copy of the code, and requires that the tests find each: pg_test/faults/run; FAULTS="lost-page"
#   make schema              writes sql/schema.sql
#
#   make test-all            make test PG=NN for versions with all test tools: VERSIONS="15 17 18"; make compiles PG=NN for others: HEADERS="16"
#   make compiles            compiles for that server, with test points and without
#
# As with PGXS, PG_CONFIG chooses the server, and its major version determines the cargo feature: pg15 .. pg18. PG=17 instead is
# a server of that version which `make setup PG=17` fetches, without installing it on the machine: tools/server.

SHELL := /bin/bash
.DEFAULT_GOAL := all
# The scripts are steps of one sequence, and cargo itself uses all cores.
.NOTPARALLEL:

PG_CONFIG ?= pg_config
# On a machine without a server, only setup can run.
ifdef PG
ifndef OWN_PG_CONFIG
OWN_PG_CONFIG := $(PG_CONFIG)
endif
export OWN_PG_CONFIG
override PG_CONFIG := $(shell OWN_PG_CONFIG='$(OWN_PG_CONFIG)' tools/server pg_config '$(PG)' 2>/dev/null)
endif
VERSIONS ?= 15 17 18
HEADERS ?= 16
export PATH := $(CURDIR)/target/tools/bin:$(PATH):$(HOME)/.cargo/bin
export PG PG_CONFIG SIZE CASSERT ALSO ALSO_TESTS ALSO_CASSERT ENGINES

# Not :=, since the server may not exist before setup has run.
TARGET = $(abspath $(or $(CARGO_TARGET_DIR),target))
PG_FEATURE = pg$(shell $(PG_CONFIG) --version 2>/dev/null | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
PACKAGE = $(TARGET)/package/$(PG_FEATURE)

all:
	@tools/build package $(if $(POINTS),points,release) "$(PACKAGE)"

setup:
	@tools/setup

install: all
	@tools/install "$(PACKAGE)"

deb: all
	@tools/reproducible tools/deb build "$(PACKAGE)"

dist:
	@tools/reproducible tools/dist write

dist-check: deb dist
	@tools/reproducible tools/dist check

deb-again:
	@tools/reproducible tools/deb again

deb-check:
	@pg_test/deb/run

uninstall:
	@tools/install . --remove

installcheck:
	@pg_test/run $(TESTS)
	@pg_test/readme/run

test-core:
	@pg_test/core/run $(SUITES)

test-engines:
	@pg_test/engines/run "$(ENGINES)" $(TESTS)

demo: setup install
	@tools/demo

demo-stop:
	@tools/demo stop

test:
	@tools/test

test-all:
	@for version in $(HEADERS); do $(MAKE) --no-print-directory setup PG=$$version && $(MAKE) --no-print-directory compiles PG=$$version || exit 1; done
	@for version in $(VERSIONS); do $(MAKE) --no-print-directory test PG=$$version || exit 1; done

compiles:
	@tools/setup clippy
	tools/cargo clippy -p pg_bulk --profile points --no-default-features --features "$(PG_FEATURE)" -- -D warnings
	tools/cargo clippy -p pg_bulk --profile points --no-default-features --features "$(PG_FEATURE) points" -- -D warnings

bench: setup install
	benches/load/run

profile: setup install
	benches/load/profile

soak:
	@SOAK=1 tools/setup
	@tools/soak

faults: setup install
	@pg_test/faults/run $(FAULTS)

schema:
	@tools/schema write

clean:
	@tools/clean

.PHONY: all setup install deb deb-again deb-check dist dist-check uninstall installcheck test-core test-engines demo demo-stop test test-all compiles bench profile soak faults schema clean
