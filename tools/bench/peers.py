"""Times Millrace beside its CPU peers on one model, in one run; see tools/bench/peers.

Each engine in turn has the machine to itself. Rounds are interleaved, so that a machine that slows
down slows all of them; the best round of each counts.
"""

import argparse
import csv
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

PREFILL = 512
PROMPT = 32
DECODE = 128

TRANSFORMERS = """
import json, sys, time
import torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(int(sys.argv[2]))
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval()
torch.manual_seed(0)
def ids(n):
    return torch.randint(0, model.config.vocab_size, (1, n))
def prefill(n):
    begin = time.perf_counter()
    with torch.inference_mode():
        model(ids(n), logits_to_keep=1)
    return n / (time.perf_counter() - begin)
def decode(prompt, n):
    with torch.inference_mode():
        out = model(ids(prompt), use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
        begin = time.perf_counter()
        for _ in range(n):
            out = model(token, past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        return n / (time.perf_counter() - begin)
prefill(64); decode(8, 4)
print(json.dumps({"prefill": max(prefill(%d) for _ in range(3)), "decode": decode(%d, %d)}))
""" % (PREFILL, PROMPT, DECODE)

BANDWIDTH = """
import sys, time
import torch
torch.set_num_threads(int(sys.argv[1]))
x = torch.zeros(1 << 27, dtype=torch.float32)
best = 0
for _ in range(5):
    begin = time.perf_counter()
    x.sum()
    best = max(best, x.numel() * 4 / (time.perf_counter() - begin))
print(best)
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """One controller and one worker, for as long as the `with` block runs."""

    def __init__(self, args):
        self.args = args

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory()
        self.port, worker_port, metrics = free_port(), free_port(), free_port()
        secret = os.path.join(self.dir.name, "secret")
        with open(secret, "w") as f:
            f.write(os.urandom(32).hex())
        os.chmod(secret, 0o600)
        serve = os.path.join(self.args.bin, "tools/serve")
        self.log = open(os.path.join(self.dir.name, "log"), "w+")
        self.processes = [
            subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
            for command in (
                [serve + "/controller", "--model", self.args.model, "--port", str(self.port),
                 "--worker-port", str(worker_port), "--metrics-port", str(metrics),
                 "--cluster-secret-file", secret, "--dtype", "bfloat16"],
                [serve + "/worker", "--controller", "127.0.0.1:%d" % worker_port,
                 "--cluster-secret-file", secret, "--threads", str(self.args.threads)],
            )
        ]
        self.wait_ready()
        return self

    def output(self):
        with open(self.log.name) as f:
            return f.read()

    def wait_ready(self):
        deadline = time.time() + 120
        while "Ready: grpc://" not in self.output():
            if time.time() > deadline or any(p.poll() is not None for p in self.processes):
                self.__exit__()
                sys.exit("the server did not start:\n" + self.output())
            time.sleep(0.1)

    def __exit__(self, *unused):
        for p in self.processes:
            if p.poll() is None:
                p.terminate()
        for p in self.processes:
            p.wait(timeout=40)

    def load(self, input_len, output_len, requests):
        path = os.path.join(self.dir.name, "load.csv")
        subprocess.run(
            [os.path.join(self.args.bin, "tools/bench/bench"), "--server",
             "127.0.0.1:%d" % self.port, "--concurrency", "1", "--num-prompts", str(requests),
             "--input-len", str(input_len), "--output-len", str(output_len), "--seed",
             str(time.time_ns() % 10**9), "--csv", path],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(path) as f:
            return next(csv.DictReader(f))


def run_millrace(args):
    with Server(args) as server:
        server.load(64, 4, 1)  # warm-up
        prefill = server.load(PREFILL, 1, 3)
        decode = server.load(PROMPT, DECODE + 1, 1)
    return {"prefill": PREFILL * 1e3 / float(prefill["ttft_p50_ms"]),
            "decode": 1e3 / float(decode["tpot_p50_ms"])}


def run_transformers(args):
    out = subprocess.run([sys.executable, "-c", TRANSFORMERS, args.model, str(args.threads)],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def run_llama_cpp(args):
    binary, gguf = args.llama_cpp
    out = subprocess.run([binary, "-m", gguf, "-t", str(args.threads), "-p", str(PREFILL), "-n",
                          str(DECODE), "-r", "3", "-o", "json"],
                         check=True, capture_output=True, text=True).stdout
    rows = json.loads(out)
    return {"prefill": next(r["avg_ts"] for r in rows if r["n_prompt"]),
            "decode": next(r["avg_ts"] for r in rows if r["n_gen"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="bazel-bin")
    parser.add_argument("--model", required=True, help="Hugging Face folder")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-cpp", nargs=2, metavar=("LLAMA_BENCH", "GGUF"),
                        help="llama-bench and a BF16 GGUF of the same model")
    args = parser.parse_args()
    engines = {"transformers bf16": run_transformers, "Millrace bf16": run_millrace}
    if args.llama_cpp:
        engines["llama.cpp bf16"] = run_llama_cpp
    best = {name: {"prefill": 0.0, "decode": 0.0} for name in engines}
    for _ in range(args.rounds):
        for name, run in engines.items():
            for what, value in run(args).items():
                best[name][what] = max(best[name][what], value)
    bandwidth = float(subprocess.run([sys.executable, "-c", BANDWIDTH, str(args.threads)],
                                     check=True, capture_output=True, text=True).stdout)
    weights = os.path.getsize(os.path.join(args.model, "model.safetensors"))
    bound = bandwidth / weights
    print("%-20s %14s %8s %14s %8s" % ("", "prefill tok/s", "ratio", "decode tok/s", "ratio"))
    base = best["transformers bf16"]
    for name, figures in best.items():
        print("%-20s %14.1f %7.2fx %14.1f %7.2fx" %
              (name, figures["prefill"], figures["prefill"] / base["prefill"], figures["decode"],
               figures["decode"] / base["decode"]))
    print("bound: %.1f GB/s read by %d threads / %.0f MB of weights = %.1f tok/s; Millrace is at "
          "%.0f %% of it" % (bandwidth / 1e9, args.threads, weights / 1e6, bound,
                             100 * best["Millrace bf16"]["decode"] / bound))


if __name__ == "__main__":
    main()
