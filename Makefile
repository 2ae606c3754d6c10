# `make demo` and `make test` set up all they need in .venv on the first run; later runs install nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h')
WORKERS ?= 2
# Kernels compiled here are kept with the rest; users' caches are elsewhere (docs/ahead-of-time.md).
export FA4_CUTE_CACHE_DIR ?= $(CURDIR)/$(VENV)/kernels

.PHONY: help demo test test-gpu launcher lint format bench mutation peers docs clean

help:
	@echo "make demo    compile the sm_100a kernels, execute them in the emulator, check them against float64"
	@echo "make test    the whole test suite"
	@echo "make test-gpu  the launch path on a Hopper GPU: tests/gpu, then host time a call"
	@echo "make lint    ruff, mypy, clang-format"
	@echo "make mutation  break the kernels' synchronisation piece by piece; writes docs/mutation.md"
	@echo "make peers   run kernels that nobody here wrote in the emulator; writes docs/peers.md"
	@echo "make docs    the documentation as a site, in build/docs"
	@echo "make bench   SASS instruction counts, next to flash-attn-4's"

demo: $(VENV)/.built
	$(BIN)/fa4-cute verify

test: $(VENV)/.built $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=10

# A GPU machine with a torch of its own: make test-gpu GPU_PYTHON=python3. Where FA4_CUTE_GPU_KERNELS names a folder that
# `python tests/gpu/sm90_build.py DIR` filled elsewhere, the DSL is not needed there.
GPU_PYTHON ?=
test-gpu: $(if $(GPU_PYTHON),launcher,$(VENV)/.built $(VENV)/.test)
	PYTHONPATH=src:$$PYTHONPATH $(or $(GPU_PYTHON),$(BIN)/python) -m pytest tests/gpu -rs --durations=5
	PYTHONPATH=src:$$PYTHONPATH $(or $(GPU_PYTHON),$(BIN)/python) bench/host_overhead.py

launcher:
	FA4_CUTE_NO_EMULATOR=1 $(GPU_PYTHON) setup.py --quiet build_ext --inplace

bench: $(VENV)/.built $(VENV)/.test
	$(BIN)/python bench/sass.py

mutation: $(VENV)/.built $(VENV)/.test
	$(BIN)/python tests/mutation/study.py

peers: $(VENV)/.built $(VENV)/.test
	$(BIN)/python tests/peers/table.py

# The API reference is read from the sources: nothing of the package has to be installed. Needs Python 3.11.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file .mkdocs.yml

# torch first: its default build brings a CUDA toolkit of gigabytes, which a machine without a GPU has no use for.
$(VENV)/.torch: constraints.txt
	@echo "== creating $(VENV) and installing torch"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --progress-bar on $$(grep '^torch==' constraints.txt)
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml constraints.txt
	@echo "== installing the CuTe DSL and build tools"
	$(PIP) install --progress-bar on -c constraints.txt setuptools nanobind ninja
	$(PIP) install --progress-bar on -c constraints.txt nvidia-cutlass-dsl filelock platformdirs rich numpy
	touch $@

$(VENV)/.built: $(VENV)/.installed setup.py $(SOURCES)
	@echo "== building the launcher and the emulator's core"
	$(BIN)/python setup.py --quiet build_ext --inplace
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -c "import fa4_cute.launch, fa4_cute.emulator"
	touch $@

$(VENV)/.test: $(VENV)/.installed peers.txt
	@echo "== installing the test tools and the peers' kernels"
	$(PIP) install --progress-bar on -c constraints.txt pytest pytest-timeout pytest-xdist ml_dtypes nvidia-cuda-nvdisasm \
		transformers
	$(PIP) install --progress-bar on --no-deps -r peers.txt
	touch $@

$(VENV)/.lint: $(VENV)/.installed
	$(PIP) install -c constraints.txt ruff mypy clang-format
	touch $@

$(VENV)/.docs: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt mkdocs-material 'mkdocstrings[python]' ruff
	touch $@

lint: $(VENV)/.built $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(SOURCES)

format: $(VENV)/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(SOURCES)

clean:
	rm -rf $(VENV) build src/*.egg-info src/fa4_cute/_launch*.so src/fa4_cute/_operator*.so src/fa4_cute/emulator/_core*.so
