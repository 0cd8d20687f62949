"""PyTorch on the workloads of bench-gpu: a line of JSON for each, timed in the same way.

    python3 bench/py/gpu.py [--compile] [NAME…]
"""
import statistics, sys, time
import torch
import torch.nn.functional as F

BATCHES, TARGET, MAX_CALLS = 5, 0.03, 400
flags = [a for a in sys.argv[1:] if a.startswith("--")]
only = [a for a in sys.argv[1:] if not a.startswith("--")]
modes = ["eager", "compile"] if "--compile" in flags else ["eager"]
wants = lambda name: not only or any(name.startswith(o) for o in only)
normal = lambda *shape, dtype=torch.float32: torch.randn(*shape, device="cuda").to(dtype)


def timed(f, n):
    t = time.perf_counter()
    for _ in range(n):
        f()
    torch.cuda.synchronize()
    return (time.perf_counter() - t) / n


def row(name, f, *args, bytes=0.0, operations=0.0, modes=modes):
    for mode in modes:
        g = f if mode == "eager" else torch.compile(f)
        call = lambda: g(*args)
        first = timed(call, 1)
        timed(call, 4)
        n = max(1, min(MAX_CALLS, int(TARGET / max(timed(call, 1), 1e-6))))
        ms = sorted(timed(call, n) * 1e3 for _ in range(BATCHES))
        m = statistics.median(ms)
        print(f'{{"fw": "torch {mode}", "row": "{name}", "ms": {m:.4f}, "lo": {ms[0]:.4f}, "hi": {ms[-1]:.4f}, '
              f'"first_s": {first:.3f}, "gbs": {bytes / m / 1e6:.0f}, "tflops": {operations / m / 1e9:.1f}}}', flush=True)


print(torch.__version__, torch.cuda.get_device_name(), file=sys.stderr)
for dtype, name, size in ((torch.float32, "f32", 4), (torch.bfloat16, "bf16", 2)):
    if wants("elementwise"):
        x, w, b = normal(8192, 8192, dtype=dtype), normal(8192, dtype=dtype), normal(8192, dtype=dtype)
        row(f"elementwise {name}", lambda x, w, b: F.gelu(x * w + b) * 0.5, x, w, b, bytes=2 * size * 8192**2)
    if wants("softmax"):
        x = normal(16384, 4096, dtype=dtype)
        row(f"softmax {name}", lambda x: torch.softmax(x, -1), x, bytes=2 * size * 16384 * 4096)
if wants("layernorm"):
    x, dy, w, b = normal(16384, 4096), normal(16384, 4096), normal(4096), normal(4096)
    f = lambda x, w, b: F.layer_norm(x, (4096,), w, b)
    row("layernorm forward f32", f, x, w, b, bytes=8 * 16384 * 4096)
    x, w, b = (t.requires_grad_() for t in (x, w, b))
    g = lambda: torch.autograd.grad(f(x, w, b), (x, w, b), dy)
    row("layernorm forward and backward f32", g, bytes=20 * 16384 * 4096, modes=["eager"])
if wants("sum"):
    x = normal(16384, 8192)
    for name, f in (("rows", lambda x: x.sum(1)), ("columns", lambda x: x.sum(0)), ("all", lambda x: x.sum())):
        row(f"sum {name}", f, x, bytes=4 * 16384 * 8192)
if wants("matmul"):
    for dtype, name, n in ((torch.bfloat16, "bf16", 4096), (torch.bfloat16, "bf16", 8192), (torch.float32, "f32", 4096)):
        a, b = normal(n, n, dtype=dtype), normal(n, n, dtype=dtype)
        for tf32 in (False, True) if dtype == torch.float32 else (False,):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            row(f"matmul {name}{' tf32' if tf32 else ''} {n}", torch.matmul, a, b, operations=2 * n**3, modes=["eager"])
    torch.backends.cuda.matmul.allow_tf32 = False
if wants("adds"):
    x = normal(16)

    def adds():
        y = x
        for _ in range(100):
            y = y + 1.0
        return y
    row("adds, 100 unfused", adds, modes=["eager"])
if wants("mlp"):
    model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 10)).cuda()
    adam = torch.optim.Adam(model.parameters(), 1e-3)
    x, y = normal(128, 784), torch.randint(0, 10, (128,), device="cuda")

    def step():
        adam.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        adam.step()
    row("mlp step", step, modes=["eager"])
