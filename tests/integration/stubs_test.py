"""The published Python stubs of the wire call every RPC of a running controller."""

import hashlib
import io
import tempfile
import threading
import unittest
import zipfile

import cluster
import grpc
import tiny_model
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc as pb_grpc
from smg_grpc_proto.generated import common_pb2 as common

ENGINE = "vllm.grpc.engine.VllmEngine"
PROMPT = list(b"Once upon a time")


def request(**changes):
    """A greedy request; changes go to the message, or to sampling_params as s_NAME."""
    sampling = {"max_tokens": 8, "temperature": 0.0, "ignore_eos": True}
    sampling.update({k[2:]: v for k, v in changes.items() if k.startswith("s_")})
    fields = {k: v for k, v in changes.items() if not k.startswith("s_")}
    if "text" not in fields:
        fields.setdefault("tokenized", pb.TokenizedInput(input_ids=PROMPT))
    return pb.GenerateRequest(sampling_params=pb.SamplingParams(**sampling), **fields)


class StubsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.channel = grpc.insecure_channel(CLUSTER.address())
        cls.stub = pb_grpc.VllmEngineStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()

    def complete(self, **changes):
        (message,) = list(self.stub.Generate(request(stream=False, **changes)))
        self.assertEqual(message.WhichOneof("response"), "complete")
        return message.complete

    def assert_refused(self, code, text, call):
        with self.assertRaises(grpc.RpcError) as caught:
            list(call()) if callable(call) else call
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        self.assertIn(text, caught.exception.details())

    def test_generate_whole_and_streamed(self):
        whole = self.complete(request_id="whole")
        self.assertEqual(len(whole.output_ids), 8)
        self.assertEqual(whole.finish_reason, "length")
        self.assertEqual(whole.prompt_tokens, len(PROMPT))
        self.assertEqual(whole.completion_tokens, 8)
        messages = list(self.stub.Generate(request(stream=True, request_id="streamed")))
        chunks = [m.chunk for m in messages[:-1]]
        self.assertEqual(messages[-1].WhichOneof("response"), "complete")
        ids = [i for chunk in chunks for i in chunk.token_ids]
        self.assertEqual(ids, list(whole.output_ids))
        self.assertEqual(list(messages[-1].complete.output_ids), ids)
        self.assertEqual(sum(chunk.completion_tokens for chunk in chunks), 8)

    def test_text_prompt_equals_its_tokens(self):
        by_text = self.complete(text=bytes(PROMPT).decode())
        self.assertEqual(by_text.output_ids, self.complete().output_ids)

    def test_choices_and_seeds(self):
        changes = {"s_n": 3, "s_temperature": 1.0, "s_seed": -7}
        first = {m.complete.index: m.complete for m in self.stub.Generate(request(**changes))}
        again = {m.complete.index: m.complete for m in self.stub.Generate(request(**changes))}
        self.assertEqual(sorted(first), [0, 1, 2])
        for index, choice in first.items():
            self.assertEqual(choice.output_ids, again[index].output_ids)
        self.assertNotEqual(first[0].output_ids, first[1].output_ids)

    def test_logprobs(self):
        complete = self.complete(s_logprobs=3, s_prompt_logprobs=2)
        out = complete.output_logprobs
        self.assertEqual(list(out.token_ids), list(complete.output_ids))
        self.assertEqual(len(out.top_logprobs), 8)
        for value, token, top in zip(out.token_logprobs, out.token_ids, out.top_logprobs):
            self.assertEqual(len(top.values), 3)
            self.assertEqual(top.token_ids[0], token)  # greedy
            self.assertAlmostEqual(top.values[0], value, places=5)
            self.assertEqual(sorted(top.values, reverse=True), list(top.values))
        prompt = complete.input_logprobs
        self.assertEqual(list(prompt.token_ids), PROMPT)
        self.assertFalse(prompt.token_logprobs[0].HasField("value"))
        self.assertTrue(all(v.HasField("value") for v in prompt.token_logprobs[1:]))

    def test_stops(self):
        ids = list(self.complete().output_ids)
        stopped = self.complete(s_stop_token_ids=[ids[3]])
        cut = ids[: ids.index(ids[3]) + 1]
        self.assertEqual(list(stopped.output_ids), cut)
        self.assertEqual(stopped.finish_reason, "stop")
        self.assertEqual(stopped.matched_token_id, ids[3])

    def test_refusals(self):
        code = grpc.StatusCode
        cases = [
            (code.INVALID_ARGUMENT, "sampling_params.n", {"s_n": 17}),
            (code.INVALID_ARGUMENT, "sampling_params.top_p", {"s_top_p": -1.0}),
            (code.INVALID_ARGUMENT, "sampling_params.logprobs", {"s_logprobs": 21}),
            (code.INVALID_ARGUMENT, "exceed the context", {"s_max_tokens": 510}),
            (
                code.INVALID_ARGUMENT,
                "tokenized.input_ids[0]",
                {"tokenized": pb.TokenizedInput(input_ids=[tiny_model.VOCAB])},
            ),
            (code.INVALID_ARGUMENT, "mm_inputs", {"mm_inputs": pb.MultimodalInputs()}),
            (code.UNIMPLEMENTED, "sampling_params.json_schema", {"s_json_schema": "{}"}),
        ]
        for status, text, changes in cases:
            with self.subTest(text):
                self.assert_refused(status, text, lambda c=changes: self.stub.Generate(request(**c)))
        self.assertEqual(len(self.complete().output_ids), 8)

    def test_abort_and_cancel(self):
        live = self.stub.Generate(request(request_id="long", stream=True, s_max_tokens=490))
        next(live)
        self.assert_refused(
            grpc.StatusCode.ALREADY_EXISTS,
            "long",
            lambda: self.stub.Generate(request(request_id="long")),
        )
        self.assertEqual(self.stub.Abort(pb.AbortRequest(request_ids=["long"])), pb.AbortResponse())
        self.assertEqual(list(live)[-1].complete.finish_reason, "abort")
        self.assert_refused(
            grpc.StatusCode.NOT_FOUND,
            "request_ids",
            lambda: [self.stub.Abort(pb.AbortRequest(request_ids=["nobody"]))],
        )
        cancelled = self.stub.Generate(request(stream=True, s_max_tokens=490))
        next(cancelled)
        cancelled.cancel()
        self.assertEqual(len(self.complete().output_ids), 8)

    def test_many_at_once(self):
        expected = list(self.complete().output_ids)
        answers = [None] * 32

        def ask(i):
            answers[i] = [t for m in self.stub.Generate(request(stream=True)) for t in m.chunk.token_ids]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(answers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [expected] * len(answers))

    def test_info(self):
        model = self.stub.GetModelInfo(pb.GetModelInfoRequest())
        self.assertEqual(model.vocab_size, tiny_model.VOCAB)
        self.assertEqual(model.max_context_length, 512)
        self.assertEqual(list(model.eos_token_ids), [tiny_model.END])
        self.assertEqual(list(model.architectures), ["LlamaForCausalLM"])
        self.assertEqual(model.default_sampling_params_json, '{"temperature":0.75}')
        server = self.stub.GetServerInfo(pb.GetServerInfoRequest())
        self.assertEqual(server.server_type, "vllm-grpc")
        self.assertGreater(server.uptime_seconds, 0)
        loads = self.stub.GetLoads(pb.GetLoadsRequest())
        self.assertEqual(len(loads.loads), 1)
        self.assertGreater(loads.loads[0].max_total_num_tokens, 0)
        self.assertTrue(self.stub.HealthCheck(pb.HealthCheckRequest()).healthy)

    def test_tokenizer_bundle(self):
        chunks = list(self.stub.GetTokenizer(common.GetTokenizerRequest()))
        data = b"".join(chunk.data for chunk in chunks)
        self.assertEqual(chunks[-1].sha256, hashlib.sha256(data).hexdigest())
        self.assertTrue(all(not chunk.sha256 for chunk in chunks[:-1]))
        with zipfile.ZipFile(io.BytesIO(data)) as bundle:
            self.assertIsNone(bundle.testzip())
            self.assertIn("tokenizer.json", bundle.namelist())
            self.assertIn("tokenizer_config.json", bundle.namelist())

    def test_cache_and_what_is_not_built(self):
        self.assertTrue(self.stub.FlushCache(common.FlushCacheRequest()).success)
        calls = [
            lambda: [self.stub.Embed(pb.EmbedRequest())],
            lambda: [self.stub.StartProfile(common.StartProfileRequest())],
            lambda: [self.stub.StopProfile(common.StopProfileRequest())],
            lambda: self.stub.SubscribeKvEvents(common.SubscribeKvEventsRequest()),
        ]
        for call in calls:
            self.assert_refused(grpc.StatusCode.UNIMPLEMENTED, "not supported", call)

    def test_health(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in ["", ENGINE]:
            answer = health.Check(health_pb2.HealthCheckRequest(service=service))
            self.assertEqual(answer.status, serving)
        watch = health.Watch(health_pb2.HealthCheckRequest(service=ENGINE))
        self.assertEqual(next(watch).status, serving)
        watch.cancel()
        self.assert_refused(
            grpc.StatusCode.NOT_FOUND,
            "service",
            lambda: [health.Check(health_pb2.HealthCheckRequest(service="other"))],
        )

    def test_every_published_number_is_ours(self):
        """By reflection: same messages, fields, numbers, types; our own from 1000 up."""
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        for file in [pb.DESCRIPTOR, common.DESCRIPTOR]:
            for message in file.message_types_by_name.values():
                ours = pool.FindMessageTypeByName(message.full_name).fields_by_number
                for field in message.fields:
                    mine = ours.get(field.number)
                    self.assertIsNotNone(mine, f"{message.full_name}.{field.name}")
                    same = ["type", "has_presence", "json_name"]
                    for what in same:
                        self.assertEqual(
                            getattr(mine, what),
                            getattr(field, what),
                            f"{what} of {message.full_name}.{field.name}",
                        )
                    self.assertEqual(
                        mine.containing_oneof and mine.containing_oneof.name,
                        field.containing_oneof and field.containing_oneof.name,
                    )
                extra = set(ours) - {field.number for field in message.fields}
                self.assertTrue(all(number >= 1000 for number in extra), message.full_name)
        service = pool.FindServiceByName(ENGINE)
        for method in pb.DESCRIPTOR.services_by_name["VllmEngine"].methods:
            mine = service.methods_by_name[method.name]
            self.assertEqual(mine.input_type.full_name, method.input_type.full_name)
            self.assertEqual(mine.output_type.full_name, method.output_type.full_name)


if __name__ == "__main__":
    ARGS = cluster.arguments()
    with tempfile.TemporaryDirectory() as scratch:
        folder = tiny_model.write(scratch + "/tiny")
        with cluster.Cluster(ARGS, folder, scratch, flags=["--load-format", "dummy"]) as CLUSTER:
            result = unittest.main(argv=["stubs_test"], exit=False).result
    raise SystemExit(0 if result.wasSuccessful() else 1)
