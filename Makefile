# One virtual environment, made on first use and renewed when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types notebooks clean

# SGD as the paper sets it and at a tuned rate, CT-AGD to the letter and cautiously, and
# the controls that tell curvature from a schedule.
DEMO := sgd sgd@0.23 ct_sgd ct_sgd_no_correction schedule_control sawtooth_control \
	ct_sgd:curvature_max=10,curvature_min=0.1,unobserved=skip

demo: $(READY)  ## train on digits with CT-AGD and its controls; table and plot
	$(BIN)/python -m benchmarks compare --workload digits_mlp --seeds 2 --jobs 2 \
	    --optimizers $(DEMO) --out runs/demo

test: $(READY)  ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## static types of the library
	$(BIN)/pyright --pythonpath $(BIN)/python

notebooks: $(READY)  ## run every notebook from top to bottom
	$(BIN)/python -m pytest --nbmake notebooks

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

clean:  ## remove the environment and everything that was made
	rm -rf $(VENV) build dist runs .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
