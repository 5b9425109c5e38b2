"""The published gateway in front of a controller and two workers: OpenAI HTTP, whole and streamed."""

import json
import os
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import cluster
import tiny_model


def smollm2():
    """The converted real model, where somebody has made it."""
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    folder = os.path.join(cache, "millrace", "models", "SmolLM2-135M-Instruct")
    return folder if os.path.exists(os.path.join(folder, "model.safetensors")) else None


def wait_for_gateway(process):
    """Until it has fetched the tokenizer, which is after it lists the model."""
    body = {"model": MODEL, "prompt": "x", "max_tokens": 1}
    request = urllib.request.Request(
        f"http://127.0.0.1:{HTTP}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    for _ in range(600):
        try:
            with urllib.request.urlopen(request, timeout=30):
                return
        except OSError:  # refused, or 503
            time.sleep(0.1)
        if process.process.poll() is not None:
            break
    raise AssertionError(f"the gateway does not answer:\n{process.text()[-6000:]}")


class GatewayTest(unittest.TestCase):
    def post(self, path, body, seconds=120):
        return urllib.request.urlopen(
            urllib.request.Request(
                f"http://127.0.0.1:{HTTP}{path}",
                data=json.dumps(body).encode(),
                headers={"Content-Type": "application/json"},
            ),
            timeout=seconds,
        )

    def chat(self, **changes):
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 24,
            "temperature": 0,
            "seed": 1,
        }
        body.update(changes)
        return body

    def streamed(self, path, body):
        """Text, finish reasons and usage of a streamed answer."""
        text, reasons, usage = "", [], None
        with self.post(path, body) as answer:
            for line in answer:
                line = line.decode().strip()
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line[len("data: ") :])
                usage = event.get("usage") or usage
                for choice in event.get("choices", []):
                    piece = choice.get("delta", {}).get("content") or choice.get("text")
                    text += piece or ""
                    if choice.get("finish_reason"):
                        reasons.append(choice["finish_reason"])
        return text, reasons, usage

    def test_models(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{HTTP}/v1/models", timeout=30) as answer:
            self.assertIn(MODEL, [m["id"] for m in json.load(answer)["data"]])

    def test_chat_whole_and_streamed_agree(self):
        with self.post("/v1/chat/completions", self.chat()) as answer:
            whole = json.load(answer)
        choice = whole["choices"][0]
        self.assertIn(choice["finish_reason"], ["stop", "length"])
        self.assertGreater(whole["usage"]["prompt_tokens"], 0)
        self.assertLessEqual(whole["usage"]["completion_tokens"], 24)
        body = self.chat(stream=True, stream_options={"include_usage": True})
        text, reasons, usage = self.streamed("/v1/chat/completions", body)
        self.assertEqual(text, choice["message"]["content"])
        self.assertEqual(reasons, [choice["finish_reason"]])
        self.assertEqual(usage["completion_tokens"], whole["usage"]["completion_tokens"])
        self.assertEqual(usage["prompt_tokens"], whole["usage"]["prompt_tokens"])
        if REAL:
            self.assertIn("Paris", text)

    def test_completion(self):
        body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
        with self.post("/v1/completions", body) as answer:
            whole = json.load(answer)["choices"][0]["text"]
        text, _, _ = self.streamed("/v1/completions", {**body, "stream": True})
        self.assertEqual(text, whole)

    def test_stop_and_logprobs(self):
        body = self.chat(logprobs=True, top_logprobs=2, max_tokens=4)
        with self.post("/v1/chat/completions", body) as answer:
            content = json.load(answer)["choices"][0]["logprobs"]["content"]
        self.assertGreater(len(content), 0)
        self.assertEqual(len(content[0]["top_logprobs"]), 2)

    def test_bad_request_is_a_client_error(self):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.post("/v1/chat/completions", self.chat(max_tokens=10**6))
        self.assertEqual(caught.exception.code, 400)


if __name__ == "__main__":
    ARGS = cluster.arguments()
    REAL = smollm2()
    with tempfile.TemporaryDirectory() as scratch:
        folder = REAL or tiny_model.write(scratch + "/tiny")
        MODEL = os.path.basename(folder)
        flags = [] if REAL else ["--load-format", "dummy"]
        flags += ["--kv-cache-memory-bytes", str(64 << 20), "--max-model-len", "512"]
        with cluster.Cluster(ARGS, folder, scratch, workers=2, flags=flags) as servers:
            HTTP = cluster.free_port()
            command = [sys.executable, "-m", "smg.launch_router", "--host", "127.0.0.1"]
            command += ["--port", str(HTTP), "--worker-urls", f"grpc://{servers.address()}"]
            command += ["--prometheus-host", "127.0.0.1"]
            command += ["--prometheus-port", str(cluster.free_port())]
            gateway = cluster.Process("gateway", command, scratch)
            try:
                wait_for_gateway(gateway)
                result = unittest.main(argv=["gateway_test"], exit=False).result
                if not result.wasSuccessful():
                    print(gateway.text()[-6000:])
                    print(servers.controller.text()[-3000:])
            finally:
                gateway.process.terminate()
                gateway.process.wait(20)
    raise SystemExit(0 if result.wasSuccessful() else 1)
