"""Starts and ends the processes of a test."""

import argparse
import os
import re
import signal
import socket
import subprocess
import time


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--controller", required=True)
    parser.add_argument("--worker", required=True)
    return parser.parse_args()


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


class Process:
    """One program with its output in a file."""

    def __init__(self, name, command, folder):
        self.name = name
        self.log = os.path.join(folder, name + ".log")
        with open(self.log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def wait_for(self, pattern, seconds=120):
        """The match of a line that the program prints."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            match = re.search(pattern, self.text())
            if match:
                return match
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"{self.name} did not print {pattern!r}:\n{self.text()}")

    def end(self, seconds=40):
        """Ends it as a user would; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not end:\n{self.text()}") from None


class Cluster:
    """A controller with `workers` workers; none: it computes by itself."""

    def __init__(self, args, model, folder, workers=0, flags=()):
        secret = os.path.join(folder, "secret")
        descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(os.urandom(32).hex())
        self.port = free_port()
        command = [args.controller, "--model", model, "--port", str(self.port)]
        command += ["--metrics-port", "0", "--cluster-secret-file", secret, *flags]
        if workers == 0:
            self.controller = Process("controller", [*command, "--local", "--threads", "1"], folder)
            self.workers = []
        else:
            dial = free_port()
            command += ["--worker-port", str(dial), "--tensor-parallel-size", str(workers)]
            self.controller = Process("controller", command, folder)
            worker = [args.worker, "--controller", f"127.0.0.1:{dial}", "--threads", "1"]
            worker += ["--cluster-secret-file", secret]
            self.workers = [Process(f"worker-{i}", worker, folder) for i in range(workers)]

    def __enter__(self):
        try:
            self.controller.wait_for(r"(?m)^Ready: grpc://")
        except AssertionError:
            for worker in self.workers:
                print(worker.text())
            self.kill()
            raise
        return self

    def address(self):
        return f"127.0.0.1:{self.port}"

    def kill(self):
        for process in [self.controller, *self.workers]:
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait()

    def __exit__(self, *_):
        try:
            codes = [process.end() for process in [self.controller, *self.workers]]
            assert codes == [0] * len(codes), (codes, self.controller.text())
        finally:
            self.kill()
