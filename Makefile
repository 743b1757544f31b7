# Two commands for a newcomer: `make demo` and `make test`. Each does its own set-up, once.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo cluster-demo test slow stress stress-once storm lint bench clean

demo: $(STAMP)
	$(BIN)/offbeat demo --out demo

cluster-demo: $(STAMP)
	$(BIN)/python examples/cluster_demo.py --out cluster-demo

test: $(STAMP)
	$(BIN)/pytest -n 2

slow: $(STAMP)
	$(BIN)/pytest -m slow -n 2 --timeout 600 --durations 10

# Every test of real processes 20 times, in random adversity, beside two busy loops. Takes hours.
stress: $(STAMP)
	$(BIN)/python tests/stress/storm.py --seeds 20

# One test of four of a single pass, by lot of its seed; says all that failed.
SEED ?= 1
stress-once: $(STAMP)
	$(BIN)/python tests/stress/storm.py --seeds 1 --first $(SEED) --busy 0 --all -- --share 4

# The attacks of `make slow` on folders, configurations and processes, many times as long.
storm: $(STAMP)
	OFFBEAT_STORM=5 OFFBEAT_FUZZ=100000 $(BIN)/pytest -m slow -n 2 --timeout 7200 \
	  tests/test_hostile.py tests/test_half_done.py tests/test_fuzz.py tests/test_kill_storm.py \
	  tests/test_killed_at_files.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/timing_only.py
	$(BIN)/python benchmarks/local.py
	$(BIN)/python benchmarks/cluster.py
	$(BIN)/python benchmarks/feeding.py
	$(BIN)/python benchmarks/word2vec.py
	$(BIN)/python benchmarks/solver_overhead.py

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[figures,data,word2vec,ray,test,lint,bench]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) demo cluster-demo
