# The two commands a newcomer needs: `make demo` and `make test`. Both make .venv themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench torchao-report matrix fuzz faults kernels-aot clean

demo: $(VENV)/.ready
	$(BIN)/aoserial demo

test: lint
	$(BIN)/pytest -n auto --dist loadscope -q

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.ready
	$(BIN)/python -m compileall -q aoserial
	$(BIN)/python -m benchmarks

# docs/torchao.md, from AOSERIAL_FIXTURES, a folder of golden cases; TORCHAO_PYTHON, a Python that has
# torchao, gives its figures beside ours.
torchao-report: $(VENV)/.ready
	PYTHONPATH=tests $(BIN)/python -m torchao_files.report $(AOSERIAL_FIXTURES) $(TORCHAO_PYTHON)

# docs/matrix.html, of the same folder and the same Python.
matrix: $(VENV)/.ready
	@: $${AOSERIAL_FIXTURES:?is to name a folder of golden cases} $${TORCHAO_PYTHON:?is to name a Python}
	$(BIN)/aoserial golden report $(AOSERIAL_FIXTURES) --reader-python $(TORCHAO_PYTHON) --allow-refused \
		--html docs/matrix.html

# Minutes. FUZZ_SEED=n for another run; a failure leaves the file that caused it.
FUZZ_SEED ?= 1
fuzz: $(VENV)/.ready
	PYTHONPATH=tests $(BIN)/python -W error tests/hostile/fuzz.py 250000 25000 $(FUZZ_SEED)
	AOSERIAL_FUZZ=1 $(BIN)/pytest -q tests/hostile
	AOSERIAL_EXAMPLES=2000 $(BIN)/pytest -q tests/gate/test_verdicts.py --hypothesis-profile search \
		--hypothesis-seed $(FUZZ_SEED)

# Minutes. Interrupts every way of writing at every call; prints the table of docs/reliability.md.
faults: $(VENV)/.ready
	$(BIN)/python tests/faults/sweep.py | $(BIN)/python tests/faults/tabulate.py

# Minutes, and 700 MB: Triton's kernels in its interpreter, and compiled for GPUs that are not here.
kernels-aot: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check triton==3.7.1  # what torch 2.13 has
	TRITON_INTERPRET=1 $(BIN)/python tests/gpu/run.py --device cpu --as sm90,sm80 --only triton --small
	$(BIN)/python tests/gpu/compiled.py

$(VENV)/.ready: pyproject.toml requirements-dev.txt hatch_build.py $(wildcard aoserial/kernels/cpu/native/c/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
