# Each target installs what it needs first (scripts/install); a second run installs nothing.
# Another interpreter: make PYTHON=/usr/bin/python3.12 …
.PHONY: demo test tests check bench bench-machines agents beside soak endurance kills faults saves maps watchers hostile compare-gateway passed conformance foreign booted check-prometheus fuzz texts picture dist check-dist deb check-deb image check-image check-kubernetes site install docs lock clean
RUN := .venv/.installed-run
TEST := .venv/.installed-test
BENCH := .venv/.installed-bench
FUZZ := .venv/.installed-fuzz
PICTURE := .venv/.installed-picture
SAVES := .venv/.installed-saves
MAPS := .venv/.installed-maps
WATCHERS := .venv/.installed-watchers
FOREIGN := .venv/.installed-foreign
BOOTED := .venv/.installed-booted
PROMETHEUS := .venv/.installed-prometheus
DIST := .venv/.installed-dist
SITE := .venv/.installed-site
KUBERNETES := .venv/.installed-kubernetes

demo: $(RUN)  ## a mount to look at: ends on Ctrl-C, or by itself without a terminal
	.venv/bin/bbfs demo

test: $(TEST)  ## everything that CI runs: the checks beside the tests
	$(MAKE) --no-print-directory --jobs=2 check tests

# Every worker and every program that a test starts would compile the sources where bytecode is not kept.
tests: export PYTHONDONTWRITEBYTECODE :=
tests: $(TEST)  ## the tests alone
	scripts/tests $(ARGS)

check: $(TEST)  ## format, lint, types and the direction of imports
	.venv/bin/ruff format --check . && .venv/bin/ruff check .
	PATH=$(CURDIR)/.venv/bin:$$PATH tests/thirdparty/node_modules/.bin/pyright
	.venv/bin/lint-imports

bench: $(BENCH)  ## everything in docs/benchmarks/results.md, beside what others would use: about twenty minutes; ARGS=--help
	.venv/bin/python benchmarks/run.py $(ARGS)

bench-machines: $(TEST)  ## four machines with and without a shared cache, in network namespaces (as root; ten minutes)
	.venv/bin/python benchmarks/machines.py $(ARGS)

agents: $(BENCH)  ## what agents find in eight sources, and what it costs them, in four ways (docs/benchmarks/agents.md)
	.venv/bin/python benchmarks/agents/play.py $(ARGS)

beside: $(TEST)  ## this bbfs and another one in one run: make beside PYTHON_BESIDE=../before/.venv/bin/python
	.venv/bin/python benchmarks/beside.py $(PYTHON_BESIDE) $(ARGS)

soak: $(TEST)  ## kill servers under a mount 200 times (some minutes); nothing may be left over
	.venv/bin/python benchmarks/soak.py

endurance: $(TEST)  ## an hour of use, changes and kills, which adds to those before; make endurance MINUTES=480 STATE=DIR
	.venv/bin/python benchmarks/endurance.py $(or $(STATE),.endurance) --minutes $(or $(MINUTES),60)
	.venv/bin/python benchmarks/endurance.py $(or $(STATE),.endurance) --report benchmarks/endurance.json

kills: $(TEST)  ## kill daemons and sources at 200 steps of saves, for each kind of source (about half an hour)
	DAEMON_KILLS=50 .venv/bin/pytest tests/mount/test_daemon_kills.py -q -n 0
	ROUNDS=200 .venv/bin/pytest tests/mount/test_save_kills.py tests/mount/test_save_steps.py -q -n 0

faults: $(TEST)  ## random programs, strangers, failing requests and kills, for each kind of source; make faults SEEDS=200 KIND=s3,mcp
	SEEDS=$(or $(SEEDS),20) FIRST=$(or $(FIRST),0) KIND=$(KIND) .venv/bin/pytest tests/mount/test_write_faults.py -q -s -n 0 $(ARGS)

saves: $(SAVES)  ## every way in which programs save, in every source that is written (about eight minutes)
	.venv/bin/pytest tests/mount/test_saves.py --saves -v -n 0

maps: $(MAPS)  ## seventeen servers with tools alone from npm and PyPI as trees, beside the client of the SDK (five minutes)
	PYTHONPATH=tests/support .venv/bin/python tests/thirdparty/maps.py $(ARGS)

watchers: $(WATCHERS)  ## inotifywait, chokidar, @parcel/watcher, watchfiles, an editor and ripgrep on a mount whose sources change (a minute)
	PYTHONPATH=tests/support .venv/bin/python tests/thirdparty/watchers.py $(ARGS)

hostile: $(TEST)  ## every attack of tests/hostile, one at a time (36 minutes), and a table of what each of them cost
	scripts/hostile

compare-gateway: $(TEST)  ## the answers of MCP servers directly and behind bbfs serve (half a minute); differences that are no rule of docs/serve.md fail
	PYTHONPATH=tests/support .venv/bin/python tests/support/compared_gateway.py

passed: $(TEST)  ## a million random operations on a passed folder, compared with a plain directory (some minutes)
	BBFS_PASSED_OPERATIONS=1000000 .venv/bin/pytest tests/vfs/test_passthrough.py -k random -q -n 0

conformance: $(TEST)  ## the conformance suite of the protocol on bbfs as a client and as a server (some minutes); ARGS=--help
	.venv/bin/python tests/thirdparty/conformance.py $(ARGS)

foreign: $(FOREIGN)  ## suites of others on each kind of mount (hours); make foreign ARGS='--kind folder calls copies'
	.venv/bin/python tests/foreign/suites.py $(ARGS)

booted: $(BOOTED)  ## the units of bbfs under a systemd that boots in a container (as root; two minutes)
	/usr/bin/python3 tests/booted/boot.py

check-prometheus: $(PROMETHEUS)  ## a Prometheus scrapes a mount; promtool checks the examples of docs/operations.md (half a minute)
	.venv/bin/python scripts/check_prometheus.py

fuzz: $(FUZZ)  ## every parser of a stranger's bytes, ten minutes each; make fuzz ARGS='--seconds 60 uri-paths'
	.venv/bin/python fuzz/run.py $(ARGS)

texts: $(TEST)  ## the texts of documents beside those of other programs (pandoc …): make texts FILES=DIRECTORY ARGS='--below 98'
	.venv/bin/python scripts/compare_texts.py $(FILES) $(ARGS)

picture: $(PICTURE)  ## the pictures at the top of the README, drawn from what bbfs demo writes
	.venv/bin/python scripts/picture.py docs/pictures

dist: $(DIST)  ## what a release has, in dist/, with wheels of pyfuse3 for machines without a compiler (some minutes)
	scripts/dist build

check-dist: $(DIST)  ## install from dist/ where there is no compiler, and mount
	scripts/dist check

deb: dist  ## Debian packages of what is in dist/, one for each Python
	scripts/deb

check-deb:  ## install, use, upgrade and purge them in fresh roots of their distributions; needs root and mmdebstrap
	scripts/check-deb $(SUITES)

image:  ## a container image of the package for Debian 12, by podman, buildah or docker
	scripts/image build

check-image:  ## build it on a fresh Debian 12, serve and mount in it; needs root, buildah and mmdebstrap
	scripts/image check

check-kubernetes: $(KUBERNETES)  ## the examples for Kubernetes by its schemas, and what they say about rights
	build/kubernetes/bin/python scripts/check_kubernetes.py packaging/kubernetes

site: $(SITE)  ## the documents as a site in build/site/site, with all its links checked
	build/site-tools/bin/python scripts/site_of_documents.py stage build/site
	cd build/site && ../site-tools/bin/zensical build --strict --config-file mkdocs.yml
	build/site-tools/bin/python scripts/site_of_documents.py check build/site/site

install: $(RUN)  ## the program bbfs in .venv/bin

docs: $(RUN)  ## write docs/commands.md, the tables of options and systemd/*.service again, and the pages for man(1) into build/share
	.venv/bin/python scripts/option_tables.py
	.venv/bin/python scripts/units.py
	.venv/bin/python scripts/reference.py
	.venv/bin/python scripts/reference.py build/share

lock: $(TEST)  ## write the lock files in locks/ again; make lock UPGRADE=--upgrade takes newer versions
	scripts/lock $(UPGRADE)

clean:
	rm -rf .booted .endurance .foreign .fuzz .prometheus .venv benchmarks/rivals/.venv tests/thirdparty/.venv tests/thirdparty/node_modules build dist .*_cache .hypothesis

$(RUN): pyproject.toml locks/requirements-uv.lock locks/requirements.lock locks/requirements-build.lock scripts/install scripts/install-system
	scripts/install run

$(TEST): $(RUN) locks/requirements-dev.lock locks/requirements-thirdparty.lock tests/thirdparty/package-lock.json
	scripts/install test

$(MAPS): $(TEST) tests/thirdparty/mapped/requirements.txt tests/thirdparty/mapped/package.json
	scripts/install maps

$(WATCHERS): $(TEST)
	scripts/install watchers

$(SAVES): $(TEST)
	scripts/install saves

$(FOREIGN): $(TEST)
	scripts/install foreign

$(BOOTED): $(RUN)
	scripts/install booted

$(PROMETHEUS): $(TEST)
	scripts/install prometheus

$(BENCH): $(TEST) locks/requirements-rivals.lock
	scripts/install bench

$(DIST): $(RUN) locks/requirements-dist.lock
	scripts/install dist

$(PICTURE): $(RUN) locks/requirements-picture.lock
	scripts/install picture

$(SITE): $(RUN) locks/requirements-site.lock
	scripts/install site

$(KUBERNETES): $(RUN) locks/requirements-kubernetes.lock
	scripts/install kubernetes

$(FUZZ): $(TEST) locks/requirements-fuzz.lock
	scripts/install fuzz
