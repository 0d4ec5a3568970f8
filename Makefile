# Two commands do everything: `make reports/adr0011.md` and `make test`. Both set up what is missing first.
PYTHON ?= python3.11
CORES ?= 1
BIN := .envs/analysis/bin
ifeq (,$(shell command -v $(PYTHON)))
PYTHON := python3
endif

.PHONY: all setup bundle audit-dependencies test test-faults test-queue lint format documents clean
all: reports/adr0011.md

setup:
	@$(PYTHON) envs/setup.py

# For a host without network: make bundle TARGET=h200 PIECE=57MB (docs/offline.md).
TARGET ?= local
PIECE ?= 1GB
bundle: setup
	@$(BIN)/python envs/bundle.py make --target $(TARGET) --piece-size $(PIECE) $(if $(MODEL),--model '$(MODEL)')

# Any target of the workflow, by its name: reports/..., results/...
reports/% results/%: setup
	@PYTHONPATH=pythonpath $(BIN)/python -m adrbench.locks
	@$(BIN)/snakemake --cores $(CORES) $@

test: setup
	@$(BIN)/python -m pytest tests $(PYTEST)

# Interrupts and kills at every stage, against real servers: about ten minutes.
test-faults: setup
	@$(BIN)/python -m pytest tests/faults -m faults $(PYTEST)

# A real Slurm on this host (Debian: slurm-wlm), started and ended by the tests.
test-queue: setup
	@$(BIN)/python -m pytest tests/cluster -m "queue or not queue" $(PYTEST)

lint: setup
	$(BIN)/ruff check src tests envs benchmarks
	$(BIN)/ruff format --check src tests envs benchmarks
	MYPYPATH=pythonpath $(BIN)/mypy -p adrbench
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

# Locks pinned with digests; known vulnerabilities by `ADVISORIES=FOLDER` (OSV) or pip-audit, else skipped, and said.
audit-dependencies: setup
	@$(BIN)/python envs/audit.py $(if $(ADVISORIES),--advisories '$(ADVISORIES)')

format: setup
	$(BIN)/ruff format src tests envs benchmarks
	$(BIN)/ruff check --fix src tests envs benchmarks
	$(BIN)/snakefmt Snakefile rules

# What is generated from the configuration's models: config/README.md and the JSON Schemas.
documents: setup
	@PYTHONPATH=pythonpath $(BIN)/python -m adrbench.config.documents

clean:
	rm -rf results reports logs models .cache .snakemake
