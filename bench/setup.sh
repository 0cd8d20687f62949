#!/usr/bin/env bash
# Makes Fornax's program and its peers from the package registries, outside the repository (PEERS_ROOT, default
# target/peers). torch needs 4 GB of disk, candle 3 minutes.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd); R=${PEERS_ROOT:-target/peers}; mkdir -p "$R"; R=$(cd "$R" && pwd)
(cd "$HERE" && CARGO_TARGET_DIR=$R/fornax cargo build --release)
[ -x "$R/venv/bin/python" ] || python3 -m venv "$R/venv"
"$R/venv/bin/pip" install -q "torch==${TORCH:-2.15.0}" numpy setuptools
(cd "$HERE/candle" && CARGO_TARGET_DIR=$R/candle cargo build --release)
