#!/usr/bin/env bash
# Makes Fornax's program and its peers from the package registries, outside the repository (PEERS_ROOT, default
# target/peers). torch needs 4 GB of disk; on two cores candle takes 3 minutes and Burn 6.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd); R=${PEERS_ROOT:-$HERE/../target/peers}; mkdir -p "$R"; R=$(cd "$R" && pwd)
(cd "$HERE" && CARGO_TARGET_DIR=$R/fornax cargo build --release)
[ -x "$R/venv/bin/python" ] || python3 -m venv "$R/venv"
"$R/venv/bin/pip" install -q "torch==${TORCH:-2.15.0}" jax==0.10.2 onnx==1.23.2 onnxruntime==1.32.0 numpy setuptools
[ -f "$R/models/resnet18_b8.onnx" ] || (cd "$HERE/py" && BENCH_MODELS=$R/models "$R/venv/bin/python" -B export_onnx.py)
for peer in candle burn; do (cd "$HERE/$peer" && CARGO_TARGET_DIR=$R/$peer cargo build --release); done
