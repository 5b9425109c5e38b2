"""Start, drain, loss of a worker, and failed starts, of real processes."""

import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import cluster
import grpc
import tiny_model
from grpc_health.v1 import health_pb2, health_pb2_grpc
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc as pb_grpc

ENGINE = "vllm.grpc.engine.VllmEngine"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# Small steps and little else, so that requests take long enough to be met on their way.
SLOW = ["--load-format", "dummy", "--kv-cache-memory-bytes", str(16 << 20)]


def long_request():
    sampling = pb.SamplingParams(max_tokens=490, temperature=0.0, ignore_eos=True, n=16)
    tokens = pb.TokenizedInput(input_ids=list(b"Once upon a time"))
    return pb.GenerateRequest(tokenized=tokens, sampling_params=sampling, stream=True)


class LifecycleTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name
        self.model = tiny_model.write(self.scratch + "/tiny")

    def start(self, workers=0, flags=()):
        servers = cluster.Cluster(ARGS, self.model, self.scratch, workers, [*SLOW, *flags])
        self.addCleanup(servers.kill)
        servers.__enter__()
        channel = grpc.insecure_channel(servers.address())
        self.addCleanup(channel.close)
        return servers, channel

    def stream(self, stub):
        """Starts a long call; returns its thread and where its outcome will be."""
        outcome = {"started": threading.Event()}

        def run():
            try:
                for message in stub.Generate(long_request()):
                    outcome["started"].set()
                    outcome["last"] = message
                outcome["code"] = grpc.StatusCode.OK
            except grpc.RpcError as error:
                outcome["code"], outcome["details"] = error.code(), error.details()
            outcome["at"] = time.monotonic()
            outcome["started"].set()

        thread = threading.Thread(target=run)
        thread.start()
        self.assertTrue(outcome["started"].wait(30))
        return thread, outcome

    def test_sigterm_drains(self):
        servers, channel = self.start(workers=2)
        stub = pb_grpc.VllmEngineStub(channel)
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=ENGINE)
        )
        self.assertEqual(next(watch).status, SERVING)
        thread, outcome = self.stream(stub)
        servers.controller.process.send_signal(signal.SIGTERM)
        self.assertEqual(next(watch).status, NOT_SERVING)
        with self.assertRaises(grpc.RpcError) as refused:
            next(stub.Generate(long_request()))
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)
        thread.join()
        self.assertEqual(outcome["code"], grpc.StatusCode.OK, outcome.get("details"))
        self.assertEqual(outcome["last"].complete.completion_tokens, 490)
        self.assertEqual(servers.controller.process.wait(30), 0)
        self.assertNotIn("failed", servers.controller.text())
        self.assertNotIn("Lost", servers.controller.text())
        for worker in servers.workers:
            self.assertEqual(worker.process.wait(5), 0)

    def test_second_signal_ends_at_once(self):
        servers, channel = self.start()
        thread, outcome = self.stream(pb_grpc.VllmEngineStub(channel))
        servers.controller.process.send_signal(signal.SIGTERM)
        servers.controller.wait_for("Draining")
        servers.controller.process.send_signal(signal.SIGTERM)
        self.assertEqual(servers.controller.process.wait(2), 128 + signal.SIGTERM)
        thread.join()
        self.assertNotEqual(outcome["code"], grpc.StatusCode.OK)

    def test_lost_worker(self):
        servers, channel = self.start(workers=2)
        stub = pb_grpc.VllmEngineStub(channel)
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=ENGINE)
        )
        self.assertEqual(next(watch).status, SERVING)
        thread, outcome = self.stream(stub)
        killed = time.monotonic()
        servers.workers[1].process.kill()
        self.assertEqual(next(watch).status, NOT_SERVING)
        self.assertLess(time.monotonic() - killed, 2)
        thread.join()
        self.assertEqual(outcome["code"], grpc.StatusCode.UNAVAILABLE)
        self.assertIn("rank", outcome["details"])
        self.assertLess(outcome["at"] - killed, 5)
        with self.assertRaises(grpc.RpcError) as refused:
            next(stub.Generate(long_request()))
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)
        # The controller stays, and is ended as ever.
        self.assertEqual(servers.controller.end(), 0)

    def test_workers_follow_their_controller(self):
        servers, _ = self.start(workers=2)
        servers.controller.process.kill()
        for worker in servers.workers:
            self.assertIsNotNone(worker.process.wait(5))

    def run_controller(self, *flags, env=None):
        local = [] if "--cluster-secret-file" in flags else ["--local"]
        command = [ARGS.controller, *local, "--metrics-port", "0", *flags]
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=env
        )
        return ended.returncode, ended.stderr.strip().splitlines()[-2:]

    def test_failed_starts_say_why_and_what_to_do(self):
        port = str(cluster.free_port())
        with open(self.scratch + "/broken.json", "w", encoding="utf-8") as out:
            out.write("{")
        os.makedirs(self.scratch + "/broken")
        os.rename(self.scratch + "/broken.json", self.scratch + "/broken/config.json")
        missing = self.scratch + "/missing"
        dummy = ["--load-format", "dummy"]
        # Flags beside the model, what the message names, and the advice.
        cases = [
            (["--model", "/nonexistent"], "/nonexistent", "Give --model the folder"),
            (["--model", self.scratch + "/broken"], "config.json", "get the file"),
            ([], "safetensors", "Give --model the folder"),
            (["-pp", "2"], "--pipeline-parallel-size", "choose another model or flag"),
            (["--max-model-len", "much"], "--max-model-len=much", "--help"),
            (["--tokenizer", missing], missing, "--tokenizer"),
            (["-tp", "1000"], "--tensor-parallel-size=1000", "that divides"),
            (["--tls-cert", "/x.pem", "--tls-key", "/x.pem"], "--tls-cert", "PEM files"),
            (["--tls-key", missing], "--tls-cert", "PEM files"),
            (["--host", "0.0.0.0"], "--allow-insecure", "--help"),
            (["--cluster-secret-file", missing], missing, "openssl rand"),
            ([*dummy, "--num-gpu-blocks-override", "1000000000"], "room for", "--max-model-len"),
        ]
        for flags, text, advised in cases:
            with self.subTest(flags):
                model = [] if "--model" in flags else ["--model", self.model]
                code, (what, advice) = self.run_controller(*model, "--port", port, *flags)
                self.assertEqual(code, 1)
                self.assertTrue(what.startswith("controller: "), what)
                self.assertIn(text, what)
                self.assertIn(advised, advice)

    def test_taken_port(self):
        servers, _ = self.start()
        flags = ["--model", self.model, "--load-format", "dummy", "--port", str(servers.port)]
        code, (what, advice) = self.run_controller(*flags)
        self.assertEqual(code, 1)
        self.assertIn(str(servers.port), what)
        self.assertIn("choose another port", advice)

    def test_model_len_that_fits(self):
        flags = ["--max-model-len", "auto", "--num-gpu-blocks-override", "4"]
        servers, channel = self.start(flags=flags)
        stub = pb_grpc.VllmEngineStub(channel)
        info = stub.GetModelInfo(pb.GetModelInfoRequest())
        self.assertEqual(info.max_context_length, 4 * 16)
        self.assertIn("Maximum model length (auto): 64 tokens", servers.controller.text())

    def test_paths_are_the_users(self):
        env = {**os.environ, "BUILD_WORKING_DIRECTORY": "/nonexistent/folder"}
        code, (what, _) = self.run_controller("--model", "tiny", env=env)
        self.assertEqual(code, 1)
        self.assertIn("/nonexistent/folder/tiny", what)


if __name__ == "__main__":
    ARGS = cluster.arguments()
    outcome = unittest.main(argv=["lifecycle_test"], exit=False).result
    raise SystemExit(0 if outcome.wasSuccessful() else 1)
