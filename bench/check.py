#!/usr/bin/env python3
"""Compares what `bench-fornax dump` wrote with PyTorch on the same inputs: check.py BENCH_FORNAX FOLDER [WORKLOAD ...]

Prints the largest difference, relative to the largest magnitude of the expected result, and fails beyond the bound.
"""
import os
import subprocess
import sys
import tomllib

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/py")
sys.argv, args = ["check", "eager"], sys.argv[1:]
import bench_torch as models  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "i64": torch.int64, "i8": torch.int8, "i32": torch.int32}


def load(folder):
    tensors = {"in": {}, "out": {}}
    for line in open(f"{folder}/manifest"):
        name, dtype, shape = line.rstrip("\n").split(" ")
        side, key = name.split(".", 1)
        data = torch.frombuffer(bytearray(open(f"{folder}/{name}", "rb").read()), dtype=DTYPES[dtype])
        tensors[side][key] = data.reshape([int(n) for n in shape.split(",") if n])
    return tensors["in"], list(tensors["out"].values())


def fill(model, named):
    """Parameters by order within each kind of layer: both sides walk their layers in the same order."""
    mine = [p for k, p in named.items() if k not in ("x", "y")]
    theirs = list(model.parameters())
    if isinstance(model, models.Gpt):  # torch lists ln1, ln2, qkv, proj, up, down, as Fornax does
        pass
    assert len(mine) == len(theirs), (len(mine), len(theirs))
    with torch.no_grad():
        for a, b in zip(theirs, mine):
            assert a.shape == b.shape, (a.shape, b.shape)
            a.copy_(b)
    return model


def losses(model, optimizer, loss):
    made = []
    for _ in range(3):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        made.append(value.detach())
    return made


def expected(name, t):
    i = [t[str(k)] for k in range(len(t)) if str(k) in t]
    if name.startswith("ew_"):
        return F.gelu(i[0] * i[1] + i[2]) * i[3]
    if name.startswith("softmax"):
        return torch.softmax(i[0], 1)
    if name.startswith("layernorm"):
        return F.layer_norm(i[0], (768,), i[1], i[2])
    if name.startswith("sum_"):
        x = i[0].double()
        return {"sum_dim0_4096": lambda: x.sum(0), "sum_dim1_4096": lambda: x.sum(1), "sum_all_4096": lambda: x.sum()}[name]()
    if name == "mm_i8_1024":
        return i[0].int() @ i[1].int()
    if name.startswith(("mm_", "mv_", "bmm_")):
        return i[0].double() @ i[1].double()
    if name.startswith("conv"):
        s, p, g = {"conv3x3_64": (1, 1, 1), "conv7x7_s2": (2, 3, 1), "conv_dw3x3": (1, 1, 64)}[name]
        return F.conv2d(i[0].double(), i[1].double(), stride=s, padding=p, groups=g)
    if name.startswith("million_"):
        return models.million(name, *i)()
    if name == "ovh_add8":
        return i[0] + 10_000 * i[1]
    if name == "train_mlp":
        m = fill(models.Mlp(), t)
        return losses(m, torch.optim.Adam(m.parameters(), 1e-3), lambda: F.cross_entropy(m(t["x"]), t["y"]))
    if name == "train_mnist_cnn":
        m = fill(models.Cnn(), t)
        for layer in m:
            if isinstance(layer, torch.nn.Dropout):
                layer.p = 0.0
        return losses(m, torch.optim.Adam(m.parameters(), 1e-3), lambda: F.cross_entropy(m(t["x"]), t["y"]))
    if name == "train_gpt":
        m, pos = fill(models.Gpt(), t), torch.arange(128)
        o = torch.optim.AdamW(m.parameters(), 1e-3, weight_decay=0.01)
        return losses(m, o, lambda: F.cross_entropy(m(t["x"], pos).view(-1, models.V), t["y"]))
    with torch.no_grad():
        if name == "decode_gpt":
            m = fill(models.Gpt(), t).eval()
            caches = [[None, None] for _ in range(4)]
            for k in range(models.CTX):
                made = m(torch.tensor([[k % models.V]]), torch.tensor([[k]]), caches)
            return made
        m = fill(models.resnet18(), t).eval()
        return m(t["x"])


def main():
    bench, folder, names = args[0], args[1], args[2:]
    names = names or [w["name"] for w in tomllib.load(open(f"{HERE}/workloads.toml", "rb"))["w"]]  # extra ones too
    bad = 0
    for name in names:
        subprocess.run([bench, "dump", name, f"{folder}/{name}"], check=True)
        inputs, made = load(f"{folder}/{name}")
        want = expected(name, inputs)
        want = want if isinstance(want, list) else [want] * len(made)
        error = max(((a.double() - b.double()).abs().max() / b.double().abs().max()).item() for a, b in zip(made, want))
        bound = 5e-3 if "bf16" in name else 1e-3 if name.startswith(("train", "decode", "resnet", "ovh")) else 1e-5
        bad += not error <= bound
        print(f"{name:20} {error:.1e} {'ok' if error <= bound else 'WRONG'}", flush=True)
        subprocess.run(["rm", "-r", f"{folder}/{name}"], check=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
