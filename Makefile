# The project's commands. What takes more than a line is a script in tools/ or pg_test/; this file knows the order
# and the names.
#
#   make setup               what must be installed first (Debian packages); leaves alone what is there
#   make                     release build of the extension; POINTS=1: with the tests' wait and fault points
#   make install             into the server of PG_CONFIG (DESTDIR is honoured)
#   make deb                 a Debian package for that server, in target/deb; deb-check: a bare Debian installs it and loads a file;
#                            deb-again: built from another directory it is the same
#   make dist                the source and its crates in an archive that builds offline, in target/dist; dist-check: it does
#   make installcheck        the server tests, on what is installed; TESTS="smoke t/001_x.t" picks some
#   make test-core           core's own tests of COPY and file_fdw with us in their place: pg_test/core/README.md; SUITES=all: all of core's
#   make test-engines        beside TimescaleDB, Citus and others, whose sources are in ENGINES=DIR: pg_test/engines/run; TESTS=t/citus.t picks some
#   make demo                a running cluster with the seed workloads loaded by COPY and by pg_bulk; SIZE=n
#   make test                everything that checks the project, from an empty machine on; CASSERT=1: the server tests on
#                            a server with assertions, which is built first; ALSO_CASSERT=1: some of them there; ALSO=17: in the end a part
#                            of the server tests on that version, or those that ALSO_TESTS names
#   make bench               side by side with COPY and others: benches/load/run; SIZE=small|seed|full, WORKLOADS=, MODES=; BASE=REF: two builds
#   make profile             where the time of a load goes, by stage and by function: benches/load/profile; WORKLOAD=test
#   make soak                sanitizers, valgrind, fuzzing, assertions, half an hour of made-up schedules, large grids: tools/soak; STAGES="asan fuzz"
#   make faults              plants faults into a copy of the code, and demands that the tests find each: pg_test/faults/run; FAULTS="lost-page"
#   make schema              sql/schema.sql anew
#
#   make test-all            make test PG=NN for each version that has all test tools: VERSIONS="15 17 18"; make compiles PG=NN for others: HEADERS="16"
#   make compiles            does it compile for that server, with the tests' points and without
#
# As with PGXS, PG_CONFIG chooses the server, and through its major version the cargo feature: pg15 .. pg18. PG=17 instead is
# a server of that version which `make setup PG=17` fetches and which is no part of the machine: tools/server.

SHELL := /bin/bash
.DEFAULT_GOAL := all
# The scripts are steps of one sequence, and cargo uses all cores by itself.
.NOTPARALLEL:

PG_CONFIG ?= pg_config
# Of a machine that has no server yet, only setup can be made.
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

# Not :=, since the server may only be there once setup has run.
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
