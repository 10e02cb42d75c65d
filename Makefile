# One virtual environment, made on first use and renewed when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := $(VENV)/.bench
READY := $(VENV)/.ready

.PHONY: demo test fuzz lint types notebooks docs clean

# SGD at three learning rates, bare and wrapped, and the paper's CT-AGD.
DEMO := sgd@0.001 robust_sgd@0.001 sgd robust_sgd ct_sgd sgd@0.1 robust_sgd@0.1

demo: $(BENCH)  ## train on digits, bare and wrapped; table and plot
	$(BIN)/python -m benchmarks compare --workload digits_mlp --seeds 2 --epochs 15 \
	    --jobs 2 --optimizers $(DEMO) --out runs/demo

test: $(READY)  ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist worksteal

fuzz: $(READY)  ## 10,000 random cases with wild gradients; prints the seeds that fail
	$(BIN)/python -m tests.hostile.fuzz --cases 10000

lint: $(READY)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## static types of the library
	$(BIN)/pyright --pythonpath $(BIN)/python

notebooks: $(READY)  ## run every notebook from top to bottom
	$(BIN)/python -m pytest --nbmake notebooks

docs: $(READY)  ## the site, in docs/_build/html, with the notebooks run; a warning is an error
	$(BIN)/sphinx-build -W --keep-going docs docs/_build/html

$(BENCH): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	touch $@

$(READY): $(BENCH)
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

clean:  ## remove the environment and everything that was made
	rm -rf $(VENV) build dist docs/_build docs/api docs/gallery runs .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
