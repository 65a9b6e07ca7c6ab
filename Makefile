# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Wheels, checkpoints and the Rust build stay in $(CACHE), so that another checkout finds them again.

PYTHON ?= python3
CACHE  ?= $(or $(PORTKIT_CACHE),$(HOME)/.cache/portkit)
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   ?= demo

export PORTKIT_CACHE := $(CACHE)
export UV_LINK_MODE  ?= copy

# One folder for both Burns: they have most crates in common.
RUST   := CARGO_TARGET_DIR=$(CACHE)/cargo
# Unoptimised: the arithmetic runs in shaders, and the build takes a third of the time.
WGPU   := CARGO_TARGET_DIR=$(CACHE)/cargo-wgpu CARGO_PROFILE_RELEASE_OPT_LEVEL=0
CARGO  := $(shell command -v cargo 2>/dev/null)

.PHONY: demo test test-burn test-gpu lint burn burn-wgpu setup clean

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
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[hf,keras]' --group dev
	@touch $@

ifeq ($(CARGO),)
burn burn-wgpu test-burn:
	@echo "No Rust toolchain was found, so Burn cannot run: get one at https://rustup.rs (1.95 or newer)."
	@echo "The proof runs portkit's own numpy reference in float32 in its place, and says so."
else
burn: setup
	$(RUST) cargo build --release --quiet --locked --manifest-path burn/Cargo.toml
	@cp -f $(CACHE)/cargo/release/portkit-burn $(BIN)/portkit-burn

burn-wgpu: setup
	$(WGPU) cargo build --release --quiet --locked --features wgpu --manifest-path burn/Cargo.toml

test-burn: burn
	cd burn && cargo fmt --check
	cd burn && $(RUST) cargo clippy --release --quiet --locked --all-targets -- -D warnings
	cd burn && $(RUST) cargo test --release --quiet --locked
	$(RUST) cargo build --release --quiet --locked --manifest-path burn/legacy/Cargo.toml
	@cp -f $(CACHE)/cargo/release/portkit-burn-legacy $(BIN)/portkit-burn-legacy
endif

# Burn on a GPU through wgpu; without a GPU, on Mesa's software Vulkan.
test-gpu: burn-wgpu
	scripts/vulkan.sh
	PORTKIT_BURN=$(CACHE)/cargo-wgpu/release/portkit-burn PORTKIT_TEST_GPU=1 PORTKIT_TEST_REAL=1 \
		$(BIN)/python -m pytest -q -m gpu

clean:
	rm -rf $(VENV) $(DEMO)
