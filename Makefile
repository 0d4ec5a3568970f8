# Two commands do everything: `make reports/adr0011.md` and `make test`. Both set up what is missing first.
# No rule but those below: make's own would compile a target that is a folder's name.
MAKEFLAGS += --no-builtin-rules
# A value as one word of the shell.
quoted = '$(subst ','\'',$(1))'
PYTHON ?= python3.11
CORES ?= 1
BIN := .envs/analysis/bin
ifeq (,$(shell command -v $(PYTHON)))
PYTHON := python3
endif

.PHONY: all reports/all status audit audit-dependencies setup bundle dry-run test test-faults test-queue test-kv test-docs lint format documents drift clean
all: reports/adr0011.md reports/index.html

# Another platform than the configuration's, for what measures: make reports/adr0011.md PLATFORM=nvidia
PLATFORM :=
chosen = $(if $(PLATFORM), --config platform=$(call quoted,$(PLATFORM)))
status audit reports/all reports/% results/%: checked = --platform $(call quoted,$(PLATFORM))
dry-run: checked = --platform $(call quoted,$(or $(PLATFORM),cpu))

# Looks first at what would only be found out after minutes (envs/preflight.py).
setup:
	@$(PYTHON) envs/preflight.py $(checked)

# Every ADR of the configuration; takes the arms of all decisions.
reports/all: setup
	@PYTHONPATH=pythonpath $(BIN)/python -m adrbench.locks
	@$(BIN)/snakemake --cores $(CORES)$(chosen) -- all

# status: every report and whether its evidence changed; audit: every number again, from raw files.
status audit: setup
	@$(BIN)/snakemake --cores 1 --quiet rules progress host$(chosen) -- $@

# For a host without network: make bundle TARGET=h200 PIECE=57MB (docs/offline.md).
TARGET ?= local
PIECE ?= 1GB
bundle: setup
	@$(BIN)/python envs/bundle.py make --target $(call quoted,$(TARGET)) --piece-size $(call quoted,$(PIECE)) $(if $(MODEL),--model $(call quoted,$(MODEL)))

# A rehearsal on this host: clean build, serve, bench, accuracy, shutdown. Another platform: make dry-run PLATFORM=dcu-bw
dry-run: setup
	@PYTHONPATH=pythonpath $(BIN)/python -m adrbench.dry_run --platform $(call quoted,$(or $(PLATFORM),cpu))

# Any target of the workflow, by its name: reports/..., results/...
reports/% results/%: setup
	@PYTHONPATH=pythonpath $(BIN)/python -m adrbench.locks
	@$(BIN)/snakemake --cores $(CORES)$(chosen)$(if $(chosen), --) $(call quoted,$@)

test: setup
	@$(BIN)/python -m pytest tests $(PYTEST)

# Every fault at every stage, against real servers; writes results/faults/report.md, and a complete one to FAULTS_REPORT.
FAULTS_REPORT ?=
test-faults: setup
	@$(BIN)/python tests/faults/faults_matrix.py $(if $(FAULTS_REPORT),--report $(call quoted,$(FAULTS_REPORT))) $(PYTEST)

# A real Slurm on this host (Debian: slurm-wlm), started and ended by the tests.
test-queue: setup
	@$(BIN)/python -m pytest tests/cluster -m "queue or not queue" $(PYTEST)

# Every KV scheme in a real vLLM against a plain torch model (vLLM 0.18.1 too, where serve-0181 is set up).
test-kv: setup
	@$(BIN)/python -m pytest tests/serve/test_serve_simulation_live.py tests/serve/test_serve_simulation.py -m "kv or slow" $(PYTEST)

# Commands of the documents that take minutes, as they are written, in a copy of the project.
test-docs: setup
	@$(BIN)/python -m pytest tests/test_docs_commands.py -m "docs or not docs" $(PYTEST)

lint: setup
	$(BIN)/ruff check src tests envs benchmarks
	$(BIN)/ruff format --check src tests envs benchmarks
	MYPYPATH=pythonpath $(BIN)/mypy -p adrbench
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

# Locks pinned with digests; known vulnerabilities by `ADVISORIES=FOLDER` (OSV) or pip-audit, else skipped, and said.
audit-dependencies: setup
	@$(BIN)/python envs/audit.py $(if $(ADVISORIES),--advisories $(call quoted,$(ADVISORIES)))

format: setup
	$(BIN)/ruff format src tests envs benchmarks
	$(BIN)/ruff check --fix src tests envs benchmarks
	$(BIN)/snakefmt Snakefile rules

# What is generated from the configuration's models: config/README.md and the JSON Schemas.
documents: setup
	@PYTHONPATH=pythonpath $(BIN)/python -m adrbench.config.documents

# Which claims about vLLM hold in other versions: make drift VERSIONS="0.18.1 0.27.0 installed"
VERSIONS ?= 0.18.1 installed
drift: setup
	@PYTHONPATH=pythonpath $(BIN)/python -m adrbench.claims.drift $(VERSIONS)

clean:
	rm -rf results reports logs models .cache .snakemake dry-run
