# Everything a developer types. `make` builds against the active environment's torch if it has one,
# else in .venv, which it makes. PYTHON=... names another interpreter.

SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build

# --- which Python ------------------------------------------------------------------------------
VENV := .venv
ACTIVE := $(firstword $(wildcard $(VIRTUAL_ENV)/lib/python3*/site-packages/torch/version.py \
                                 $(CONDA_PREFIX)/lib/python3*/site-packages/torch/version.py))
ifdef PYTHON
  PY := $(PYTHON)
else ifneq ($(ACTIVE),)
  PY := $(firstword $(subst /lib/python3, ,$(ACTIVE)))/bin/python
else
  PY := $(CURDIR)/$(VENV)/bin/python
  ENV := $(VENV)/.ready
endif
PIP := $(if $(shell command -v uv),uv pip,$(PY) -m pip)
INTO := $(if $(shell command -v uv),--python $(PY))
export JOBS ?= $(shell nproc)
RUN := $(PY) -m

# --- build -------------------------------------------------------------------------------------
# The editable install is made where this checkout is not yet the one that Python finds; after that
# only CMake runs.
INSTALLED = import importlib.util as u, sys; s = u.find_spec("ortmodule"); \
            sys.exit(not (s and s.origin == "$(CURDIR)/ortmodule/__init__.py"))

.PHONY: build
build: $(ENV) | build/.system
	@$(PY) -I -c '$(INSTALLED)' || \
	    $(PIP) install $(INTO) -q --no-build-isolation --no-deps -e .
	@$(PY) setup.py -q build_ext --inplace

build/.system: tools/system_packages.sh
	@mkdir -p build
	@tools/system_packages.sh
	@touch $@

$(VENV)/.ready: requirements/dev.txt tools/make_venv.sh | build/.system
	@tools/make_venv.sh $(VENV) requirements/dev.txt
	@touch $@

# --- from a fresh machine to a trained model ---------------------------------------------------
.PHONY: run
run: build
	@$(PY) examples/01_one_line.py

# --- tests -------------------------------------------------------------------------------------
.PHONY: test cpp_tests t dev
cpp_tests: build
	@cmake --build build/current --target cpp_tests -j $(JOBS)

# A process for each of JOBS processors; two threads in each, as much of the tests is about threads.
# Many start interpreters of their own: compiled Python is kept, whatever the environment says.
test: cpp_tests
	@cd build/current && ctest --output-on-failure -j $(JOBS)
	@OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE= \
	    $(RUN) pytest -q -m "not long" -n $(JOBS) --dist worksteal $(ARGS)

# Sweeps that take minutes to hours: 100,000 mutated files, then torch's operator database and
# some 350 models of others, resumed where they were left; every operator's time at last.
.PHONY: long
long: cpp_tests
	@$(RUN) pytest -q -m long
	@cmake --build build/current --target fuzzers -j $(JOBS)
	@build/current/fuzz_onnx_session 100000
	@for dtype in bfloat16 float64 float32; do \
		OMP_NUM_THREADS=1 nice $(PY) tools/opdb.py --dtype $$dtype $(ARGS) || exit 1; done
	@OMP_NUM_THREADS=1 nice $(PY) tools/opdb.py --cross 200
	@OMP_NUM_THREADS=1 nice $(PY) tools/sweep.py
	@for kind in module onnx; do \
		OMP_NUM_THREADS=1 nice $(PY) tools/programs --kind $$kind --count 20000 --resume || exit 1; done
	@$(PY) benchmarks/ops.py

# make t k=layer_norm: the Python tests whose name has k; slow ones out.
t: build
	@$(RUN) pytest -q -m "not slow and not long" -k "$(k)" $(ARGS)

# Everything for working on it: environment, build, pre-commit hooks, compile_commands.json.
dev: cpp_tests
	@ln -sf build/current/compile_commands.json compile_commands.json
	@if [ -e .git ]; then $(RUN) pre_commit install; fi

# --- the rest ----------------------------------------------------------------------------------
CPP_FILES = $(shell git ls-files -co --exclude-standard '*.h' '*.cpp')
.PHONY: fmt bench roofline replay gpu gpu-pack compat lock clean
fmt: $(ENV)
	@$(RUN) ruff check --fix -q .
	@$(RUN) ruff format -q .
	@$(dir $(PY))clang-format -i $(CPP_FILES)

bench: build
	@cmake --build build/current --target run_loop streams -j $(JOBS)
	@$(PY) benchmarks/compare.py $(ARGS)

# Each step of the same workloads beside what the machine could do; ARGS=bert for one.
roofline: build
	@cmake --build build/current --target peak -j $(JOBS)
	@$(PY) benchmarks/roofline.py $(ARGS)

# The plans of the example models, compared with the recorded ones: a refactor changes none.
replay: build
	@$(PY) tools/replay.py $(ARGS)

# For a machine with a GPU and without network: `make gpu-pack PYTHON=...` here, with that machine's
# version of Python; there unpack it and run tools/gpu/stages.py, which is what `make gpu` runs here.
gpu-pack: build
	@tools/gpu/pack.sh $(PY)

gpu: build
	@$(PY) tools/gpu/stages.py

# The newest torch in an environment of its own, with a wheel built for it, and the model tests.
compat: build/.system
	@tools/compat.sh .venv-compat

# Pins every package of requirements/dev.in, for all Python versions at once (needs uv).
lock:
	@uv pip compile --universal --python-version 3.11 --no-header --no-annotate -q \
	    requirements/dev.in -o requirements/dev.txt

clean:
	@rm -rf build dist out *.egg-info ortmodule/*.so ortmodule/_build_info.py compile_commands.json
