"""Tests of the GGUF converter: a tiny model written as GGUF comes back bit for bit."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import gguf
import numpy as np

from hf_convert import convert_gguf, gguf_llama, make_tiny, safetensors_file
from hf_convert.errors import ConvertError

_NAMES = {ours: theirs for theirs, ours in gguf_llama._BLOCK_TENSORS.items()}
_MODEL = {ours: theirs for theirs, ours in gguf_llama._MODEL_TENSORS.items()}


def gguf_name(name):
    """A Hugging Face tensor name as GGUF spells it."""
    if name in _MODEL:
        return _MODEL[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{_NAMES[part]}.{kind}"


def halves_to_interleaved(values, heads):
    """Row by row: row i of a head's first half goes to 2i, of its second half to 2i + 1."""
    out = np.empty_like(values)
    head_dim = values.shape[0] // heads
    for row in range(values.shape[0]):
        head, i = divmod(row, head_dim)
        half, pair = divmod(i, head_dim // 2)
        out[head * head_dim + 2 * pair + half] = values[row]
    return out


def write_gguf(path, model, changes=()):
    """Writes a folder of make_tiny with float32 weights as a GGUF file."""
    config = model["config"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([f"t{i}" for i in range(config["vocab_size"])])
    writer.add_token_types([1] * config["vocab_size"])
    writer.add_token_merges(["t 1"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for change in changes:
        change(writer)
    for name, values in model["tensors"].items():
        if ".q_proj." in name:
            values = halves_to_interleaved(values, config["num_attention_heads"])
        if ".k_proj." in name:
            values = halves_to_interleaved(values, config["num_key_value_heads"])
        writer.add_tensor(gguf_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tiny_model(*flags):
    """Config and float32 tensors of make_tiny's model."""
    args = make_tiny.parse_args(["unused", "--dtype=f32", *flags])
    config = make_tiny.config_of(args)
    tensors = {}
    for name, shape in make_tiny.shapes(config):
        data = make_tiny.random_bytes(name, int(np.prod(shape)), "f32", args.seed)
        tensors[name] = np.frombuffer(data, dtype="<f4").reshape(shape)
    return {"config": config, "tensors": tensors}


class RoundTripTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)

    def convert(self, model, *changes):
        write_gguf(self.root / "m.gguf", model, changes)
        with contextlib.redirect_stderr(io.StringIO()):
            convert_gguf.convert(self.root / "m.gguf", self.root / "out")
        return self.root / "out" / "model.safetensors"

    def test_same_weights(self):
        for i, flags in enumerate(
            (
                ("--heads=4", "--kv-heads=2", "--layers=2"),
                ("--heads=3", "--head-dim=10", "--hidden=24", "--tie"),
                ("--attention-bias", "--mlp-bias", "--kv-heads=1"),
            )
        ):
            self.root = self.root / str(i)
            self.root.mkdir()
            model = tiny_model(*flags)
            found = safetensors_file.hashes(self.convert(model))
            header, start = safetensors_file.read_header(self.root / "out" / "model.safetensors")
            data = (self.root / "out" / "model.safetensors").read_bytes()[start:]
            self.assertEqual(set(found), set(model["tensors"]))
            for name, values in model["tensors"].items():
                begin, end = header[name]["data_offsets"]
                self.assertEqual(header[name]["shape"], list(values.shape))
                self.assertEqual(data[begin:end], make_tiny.to_bf16(values.tobytes()), name)

    def test_config_comes_back(self):
        model = tiny_model("--heads=4", "--kv-heads=2", "--rope-theta=500000")
        self.convert(model)
        config = json.loads((self.root / "out" / "config.json").read_text())
        for key, value in model["config"].items():
            self.assertEqual(config[key], "bfloat16" if key == "torch_dtype" else value, key)

    def test_refusals_name_the_reason(self):
        extra = tiny_model()
        extra["tensors"]["model.layers.9.mlp.up_proj.weight"] = np.zeros((2, 2), np.float32)
        lacking = tiny_model()
        del lacking["tensors"]["model.norm.weight"]
        lopsided = tiny_model()
        lopsided["tensors"]["model.layers.0.self_attn.q_proj.bias"] = np.zeros(64, np.float32)
        scaled = lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        for model, changes, message in (
            (extra, (), "'blk.9.ffn_up.weight' is not part"),
            (lacking, (), "'output_norm.weight' is missing"),
            (lopsided, (), "biases on attn_q only"),
            (tiny_model(), (scaled,), "'yarn' is not converted"),
        ):
            with self.assertRaises(ConvertError) as caught:
                self.convert(model, *changes)
            self.assertIn(message, str(caught.exception))
            self.assertFalse((self.root / "out").exists())

    def test_not_gguf(self):
        for data in (b"", b"GGUF", b"hello world" * 10):
            (self.root / "m.gguf").write_bytes(data)
            with self.assertRaises(ConvertError) as caught:
                gguf_llama.GgufLlama(self.root / "m.gguf")
            self.assertIn("not a readable GGUF", str(caught.exception))

    def test_nan_and_rounding(self):
        bits = np.array([0x7F800001, 0x3F808000, 0x3F818000, 0xFF800000], dtype="<u4")
        narrow = gguf_llama.float32_to_bf16(bits.view("<f4"))
        self.assertEqual([hex(b) for b in narrow], ["0x7fc0", "0x3f80", "0x3f82", "0xff80"])


if __name__ == "__main__":
    unittest.main()
