#!/usr/bin/env -S python3 -B
"""Tests of the parts of hf_convert that need no package."""

import contextlib
import io
import json
import pathlib
import struct
import tempfile
import unittest

from hf_convert import folder, make_tiny, safetensors_file
from hf_convert.errors import ConvertError
from hf_convert.gguf_tokenizer import GgufTokenizer
from hf_convert.tiny_tokenizer import byte_characters, tokenizer_json

_TOKENIZER = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<|end|>", "a", "b", "ab", "<user>", "[PAD5]"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1, 4, 5],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.chat_template": "T",
    "llama.context_length": 64,
}


def gguf_tokenizer(**changes):
    """The tokenizer of a file with the metadata above, changed; None removes."""
    values = {**_TOKENIZER, **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}}

    def field(key, *default):
        if values.get(key) is not None:
            return values[key]
        if not default:
            raise ConvertError(f"{key} is missing")
        return default[0]

    return GgufTokenizer("IN.gguf", field)


class TinyTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)

    def make(self, name, *flags):
        """Runs the tool; returns the folder, or the message when it refuses."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = make_tiny.main([str(self.root / name), *flags])
        if code:
            return err.getvalue()
        self.assertEqual(out.getvalue().splitlines()[-1], str(self.root / name))
        return self.root / name

    def test_sizes_reach_the_files(self):
        made = self.make(
            "m", "--hidden=24", "--intermediate=40", "--layers=3", "--heads=3", "--kv-heads=1",
            "--head-dim=10", "--vocab=50", "--attention-bias", "--mlp-bias", "--rope=llama3",
        )
        header, _ = safetensors_file.read_header(made / "model.safetensors")
        self.assertEqual(len(header), 1 + 3 * 16 + 2)
        self.assertEqual(header["model.layers.2.self_attn.q_proj.weight"]["shape"], [30, 24])
        self.assertEqual(header["model.layers.0.self_attn.k_proj.bias"]["shape"], [10])
        self.assertEqual(header["model.layers.0.self_attn.o_proj.weight"]["shape"], [24, 30])
        self.assertEqual(header["model.layers.0.mlp.down_proj.weight"]["shape"], [24, 40])
        self.assertEqual(header["lm_head.weight"]["shape"], [50, 24])
        config = json.loads((made / "config.json").read_text())
        self.assertEqual(config["head_dim"], 10)
        self.assertEqual(config["rope_scaling"]["rope_type"], "llama3")

    def test_tied_has_no_head(self):
        header, _ = safetensors_file.read_header(self.make("m", "--tie") / "model.safetensors")
        self.assertNotIn("lm_head.weight", header)

    def test_shards_hold_the_same_tensors(self):
        whole = safetensors_file.hashes(self.make("m") / "model.safetensors")
        sharded = self.make("s", "--shards=3")
        index = json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"]
        self.assertEqual(set(index), set(whole))
        found = {}
        for file in sorted(set(index.values())):
            for name, value in safetensors_file.hashes(sharded / file).items():
                self.assertEqual(index[name], file)
                found[name] = value
        self.assertEqual(found, whole)
        self.assertEqual(len(set(index.values())), 3)

    def test_seed_decides(self):
        first = safetensors_file.hashes(self.make("a") / "model.safetensors")
        same = safetensors_file.hashes(self.make("b") / "model.safetensors")
        other = safetensors_file.hashes(self.make("c", "--seed=1") / "model.safetensors")
        self.assertEqual(first, same)
        self.assertNotEqual(first, other)

    def test_bf16_rounds_to_nearest_even(self):
        words = (0x3F800000, 0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F818000, 0xBF818000)
        want = (0x3F80, 0x3F80, 0x3F80, 0x3F81, 0x3F82, 0xBF82)
        self.assertEqual(
            struct.unpack("<6H", make_tiny.to_bf16(struct.pack("<6I", *words))), want
        )

    def test_dtypes_hold_the_same_values(self):
        wide = make_tiny.random_bytes("x", 100, "f32", 0)
        self.assertEqual(make_tiny.random_bytes("x", 100, "bf16", 0), make_tiny.to_bf16(wide))
        halves = struct.unpack("<100e", make_tiny.random_bytes("x", 100, "f16", 0))
        for half, single in zip(halves, struct.unpack("<100f", wide)):
            self.assertAlmostEqual(half, single, delta=abs(single) / 1024 + 1e-7)

    def test_refusals_leave_nothing(self):
        self.assertIn("kv heads", self.make("m", "--heads=4", "--kv-heads=3"))
        self.assertIn("even", self.make("m", "--head-dim=15"))
        self.assertIn("num_hidden_layers is 0", self.make("m", "--layers=0"))
        self.assertIn("--shards 0", self.make("m", "--shards=0"))
        self.assertIn("at least 271", self.make("m", "--vocab=100", "--tokenizer"))
        self.assertEqual(list(self.root.iterdir()), [])
        (self.root / "m").mkdir()
        (self.root / "m" / "file").touch()
        self.assertIn("cannot put the finished folder", self.make("m"))
        self.assertEqual([p.name for p in self.root.iterdir()], ["m"])

    def test_tokenizer_covers_all_bytes(self):
        characters = byte_characters()
        self.assertEqual(len(set(characters)), 256)
        self.assertEqual(characters[ord(" ")], "Ġ")
        self.assertEqual(characters[ord("\n")], "Ċ")
        model = tokenizer_json()["model"]
        self.assertEqual(sorted(model["vocab"].values()), list(range(271)))
        for merge in model["merges"]:
            left, right = merge.split()
            self.assertTrue({left, right, left + right} <= set(model["vocab"]))


class VerifyTest(unittest.TestCase):
    def test_differences_are_named(self):
        with tempfile.TemporaryDirectory() as root, contextlib.redirect_stderr(io.StringIO()):
            root = pathlib.Path(root)
            data = b"\x80\x3f\x00\x40"
            safetensors_file.write(
                root / "model.safetensors", [("w", "BF16", [2], len(data), lambda: data)]
            )
            good = {name: list(value) for name, value in
                    safetensors_file.hashes(root / "model.safetensors").items()}
            expected = root / "tensors.json"
            expected.write_text(json.dumps(good))
            folder.verify(root, expected)
            for wrong, message in (
                ({}, "'w' is not expected"),
                ({**good, "v": [[1], "00"]}, "'v' is missing"),
                ({"w": [[2], "00"]}, "want [2] 00"),
                ({"w": [[1], good["w"][1]]}, "want [1]"),
            ):
                expected.write_text(json.dumps(wrong))
                with self.assertRaises(ConvertError) as caught:
                    folder.verify(root, expected)
                self.assertIn(message, str(caught.exception))


class GgufTokenizerTest(unittest.TestCase):
    def test_smollm(self):
        content = gguf_tokenizer().tokenizer_json()
        self.assertEqual(
            [(t["id"], t["content"], t["special"]) for t in content["added_tokens"]],
            [(0, "<|end|>", True), (4, "<user>", False)],
        )
        kinds = [part["type"] for part in content["pre_tokenizer"]["pretokenizers"]]
        self.assertEqual(kinds, ["Digits", "ByteLevel"])
        self.assertNotIn("[PAD5]", content["model"]["vocab"])
        self.assertEqual(content["model"]["vocab"]["ab"], 3)
        self.assertEqual(content["post_processor"]["special_tokens"], {})
        config = gguf_tokenizer().tokenizer_config()
        self.assertEqual(config["chat_template"], "T")
        self.assertEqual(config["bos_token"], "<|end|>")

    def test_llama3_begins_with_bos(self):
        content = gguf_tokenizer(pre="llama-bpe").tokenizer_json()
        self.assertEqual(
            content["post_processor"]["single"][0], {"SpecialToken": {"id": "<|end|>", "type_id": 0}}
        )
        self.assertTrue(content["model"]["ignore_merges"])
        without = gguf_tokenizer(pre="llama-bpe", add_bos_token=False).tokenizer_json()
        self.assertEqual(len(without["post_processor"]["single"]), 1)

    def test_refusals(self):
        for changes, message in (
            ({"model": "llama"}, "tokenizer.ggml.model is 'llama'"),
            ({"pre": "qwen2"}, "tokenizer.ggml.pre is 'qwen2'"),
            ({"eos_token_id": 6}, "eos_token_id is 6"),
            ({"token_type": [1]}, "differ in length"),
            ({"pre": "llama-bpe", "bos_token_id": None}, "without a bos_token_id"),
            ({"merges": None}, "merges is missing"),
        ):
            with self.assertRaises(ConvertError) as caught:
                gguf_tokenizer(**changes)
            self.assertIn(message, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
