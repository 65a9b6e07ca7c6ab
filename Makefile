# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Wheels, checkpoints and the Rust build stay in $(CACHE), so that another checkout finds them again.

PYTHON ?= python3
CACHE  ?= $(or $(PORTKIT_CACHE),$(HOME)/.cache/portkit)
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   ?= demo

export PORTKIT_CACHE := $(CACHE)
export UV_LINK_MODE  ?= copy
RUST   := CARGO_TARGET_DIR=$(CACHE)/cargo
LEGACY := CARGO_TARGET_DIR=$(CACHE)/cargo-legacy
CARGO  := $(shell command -v cargo 2>/dev/null)

.PHONY: demo test test-burn lint burn setup clean

demo: setup burn
	@rm -rf $(DEMO)
	@model=$$($(BIN)/python scripts/checkpoints.py minilm) && \
	$(BIN)/portkit inspect $$model && \
	$(BIN)/portkit convert $$model $(DEMO)/minilm-burn --from hf --to burn

test: setup lint test-burn
	$(BIN)/python scripts/checkpoints.py --all
	PORTKIT_TEST_REAL=1 $(BIN)/python -m pytest -q -n 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(VENV)/.done

$(VENV)/.done: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[hf]' --group dev
	@touch $@

ifeq ($(CARGO),)
burn test-burn:
	@echo "No Rust toolchain was found, so Burn cannot run: get one at https://rustup.rs (1.95 or newer)."
	@echo "The proof runs portkit's own numpy reference in float32 in its place, and says so."
else
burn: setup
	$(RUST) cargo build --release --quiet --locked --manifest-path burn/Cargo.toml
	@cp -f $(CACHE)/cargo/release/portkit-burn $(BIN)/portkit-burn

test-burn: burn
	cd burn && cargo fmt --check
	cd burn && $(RUST) cargo clippy --release --quiet --locked --all-targets -- -D warnings
	cd burn && $(RUST) cargo test --release --quiet --locked
	$(LEGACY) cargo build --release --quiet --locked --manifest-path burn/legacy/Cargo.toml
	@cp -f $(CACHE)/cargo-legacy/release/portkit-burn-legacy $(BIN)/portkit-burn-legacy
endif

clean:
	rm -rf $(VENV) $(DEMO)
