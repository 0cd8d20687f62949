#!/usr/bin/env python3
"""Times Fornax beside its peers.  All peers stay resident; a round times each of them once, in turn, and the median
over the rounds of the mean iteration time is kept, with the least and the greatest, and the fastest single iteration of
all.  Rounds that other processes disturbed are repeated; where the machine stays busy, only the fastest iteration means
something.

  run.py --out results.json [--peers a,b] [--workloads x,y] [--extra] [--rounds 9] [--slice 0.12]
  run.py --rss --out results.json  adds the peak memory of the training workloads, one fresh process each
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time as clock
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("PEERS_ROOT", "target/peers")
PY = f"{ROOT}/venv/bin/python"


PEERS = {
    "fornax": [f"{ROOT}/fornax/release/bench-fornax"],
    "torch": [PY, f"{HERE}/py/bench_torch.py", "eager"],
    "compile": [PY, f"{HERE}/py/bench_torch.py", "compile"],
    "jax": [PY, f"{HERE}/py/bench_jax.py"],
    "ort": [PY, f"{HERE}/py/bench_ort.py"],
    "candle": [f"{ROOT}/candle/release/bench-candle"],
    "burn": [f"{ROOT}/burn/release/bench-burn"],
}


def cpu():
    """The processor: its name, or, where that says little, its family and model too."""
    info = dict(line.split(":", 1) for line in open("/proc/cpuinfo").read().split("\n\n")[0].splitlines() if ":" in line)
    info = {k.strip(): v.strip() for k, v in info.items()}
    name = f"{info['model name']} (family {info['cpu family']}, model {info['model']})"
    return {"cpu": name, "cores": os.cpu_count(), "avx512": "avx512f" in info["flags"]}


def versions():
    def of(*command):
        return subprocess.run(command, capture_output=True, text=True, cwd=HERE).stdout.strip()

    def locked(package):
        return tomllib.load(open(f"{HERE}/{package}/Cargo.toml", "rb"))["dependencies"]

    installed = of(PY, "-c", "import importlib.metadata as m\nfor n in ('torch', 'jax', 'onnxruntime'): print(n, m.version(n))")
    return {"fornax": of("git", "rev-parse", "--short", "HEAD"), "rustc": of("rustc", "--version"),
            "candle": locked("candle")["candle-core"].lstrip("="), "burn": locked("burn")["burn"]["version"].lstrip("=")
            } | dict(line.split() for line in installed.splitlines())


class Peer:
    def __init__(self, name, threads=2):
        env = dict(os.environ)
        for k in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
            env.pop(k, None)
        t = str(threads)
        env |= {"OMP_NUM_THREADS": t, "MKL_NUM_THREADS": t, "OPENBLAS_NUM_THREADS": t, "RAYON_NUM_THREADS": t,
                "MATMUL_NUM_THREADS": t, "BENCH_THREADS": t, "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu",
                "PYTHONDONTWRITEBYTECODE": "1", "TORCHINDUCTOR_CACHE_DIR": f"{ROOT}/inductor", "BENCH_MODELS": f"{ROOT}/models",
                "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=" + ("true" if threads > 1 else "false")}
        self.name = name
        self.p = subprocess.Popen(PEERS[name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
                                  stderr=open(f"{ROOT}/stderr-{name}.txt", "a"))

    def ask(self, cmd):
        try:
            self.p.stdin.write(cmd + "\n")
            self.p.stdin.flush()
            r = self.p.stdout.readline().strip()
        except BrokenPipeError:
            r = ""
        return r or "na died"

    def time(self, n):
        r = self.ask(f"time {n}")
        return None if r.startswith("na") else [int(v) / 1e6 for v in r.split(",")]

    def ticks(self):
        """(busy ticks of the whole machine, ticks of this peer with its children)"""
        m = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        s = open(f"/proc/{self.p.pid}/stat").read().rsplit(")", 1)[1].split()
        return m[0] + m[1] + m[2] + m[5] + m[6] + m[7], sum(int(x) for x in s[11:15])

    def clean_time(self, n):
        """Mean and least iteration time, and whether other processes took more than a tenth of the machine meanwhile."""
        a, t0 = self.ticks(), clock.monotonic()
        t = self.time(n)
        if t is None:
            return None, None, False
        b, cap = self.ticks(), (clock.monotonic() - t0) * 100 * os.cpu_count()
        return statistics.fmean(t), min(t), (b[0] - a[0]) - (b[1] - a[1]) <= max(3, 0.1 * cap)

    def close(self):
        if self.p.poll() is None:
            try:
                self.p.stdin.write("quit\n")
                self.p.stdin.close()
                self.p.wait(20)
            except Exception:
                self.p.terminate()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--peers", default=",".join(PEERS))
    ap.add_argument("--workloads")
    ap.add_argument("--extra", action="store_true", help="the workloads marked so, and no others")
    ap.add_argument("--rounds", type=int, default=9)
    ap.add_argument("--slice", type=float, default=0.12, help="seconds of timing per peer and round")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--rss", action="store_true")
    ap.add_argument("--hold", type=float, default=240, help="seconds to keep the machine lock before letting others in")
    ap.add_argument("--lock", default=f"{ROOT}/cpu.lock")
    a = ap.parse_args()
    spec = tomllib.load(open(f"{HERE}/workloads.toml", "rb"))["w"]
    names = a.workloads.split(",") if a.workloads else [w["name"] for w in spec if a.extra == w.get("extra", False)]
    if a.rss and not a.workloads:
        names = [w["name"] for w in spec if w.get("train")] + ["decode_gpt"]
    peers = [p for p in a.peers.split(",") if os.path.exists(PEERS[p][0])]
    res = json.load(open(a.out)) if os.path.exists(a.out) else {}
    if not a.rss:
        res["about"] = cpu() | {"shared": True, "threads": a.threads, "rounds": a.rounds, "versions": versions(),
                                "date": clock.strftime("%Y-%m-%d")}
    import fcntl
    lock = open(a.lock, "w")
    if a.rss:
        for w in names:
            for p in peers:
                fcntl.flock(lock, fcntl.LOCK_EX)
                s = Peer(p, a.threads)
                base = s.ask("rss")
                if s.ask("setup " + w) == "ok":
                    s.time(10)
                    grown = (int(s.ask("rss").split(",")[1]) - int(base.split(",")[0])) / 1024
                    res.setdefault(w, {}).setdefault(p, {})["grown_mib"] = grown
                    print(w, p, f"{grown:.0f} MiB", flush=True)
                s.close()
                fcntl.flock(lock, fcntl.LOCK_UN)
        json.dump(res, open(a.out, "w"), indent=1)
        return
    live, held = {p: Peer(p, a.threads) for p in peers}, 0.0
    for w in names:
        if not held:  # hold for a few minutes at a time, so that other users of the lock get turns
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = clock.monotonic()
        ok, n, v = [], {}, {p: [] for p in peers}
        for p in peers:
            if live[p].p.poll() is not None:
                live[p] = Peer(p, a.threads)
            r = live[p].ask("setup " + w)
            if r != "ok":
                if "not implemented" not in r:
                    res.setdefault(w, {})[p] = {"error": r}
                    print(w, p, r, flush=True)
                continue
            t1 = live[p].time(2)
            if t1 is None:
                continue
            t = t1[-1]
            warm = max(1, min(300, int(a.slice * 1e3 / t)))
            live[p].time(warm)
            n[p] = max(1, min(5000, int(a.slice * 1e3 / t)))
            ok.append(p)
            if p == "fornax":  # counters of a single iteration, all caches warm
                live[p].ask("extra")
                live[p].time(1)
                pairs = (pair.split("=") for pair in live[p].ask("extra").split())
                counters = {k: int(c) for k, c in pairs}
                res.setdefault(w, {})["counters"] = counters
        dirty, fastest = {p: [] for p in peers}, {}
        for k in range(2 * a.rounds):  # rounds disturbed by other processes are repeated, up to twice as many
            todo = [p for p in ok if len(v[p]) < a.rounds]
            if not todo:
                break
            for p in todo:
                t, least, clean = live[p].clean_time(n[p])
                if t:
                    (v if clean else dirty)[p].append(t)
                    fastest[p] = min(fastest.get(p, least), least)
        for p in ok:
            used = v[p] if len(v[p]) >= 3 else v[p] + dirty[p]
            if used:
                res.setdefault(w, {})[p] = {"ms": statistics.median(used), "min": min(used), "max": max(used), "fastest": fastest[p], "iters": n[p],
                                            "rounds": len(used), "clean": len(v[p]), "dirty": len(dirty[p])}
            live[p].ask("drop")
        if clock.monotonic() - held > a.hold:
            fcntl.flock(lock, fcntl.LOCK_UN)
            held = 0.0
        print(w, {p: round(res[w][p]["fastest"], 4) for p in ok if "ms" in res.get(w, {}).get(p, {})}, flush=True)
        json.dump(res, open(a.out, "w"), indent=1)
    for s in live.values():
        s.close()


if __name__ == "__main__":
    sys.exit(main())
