#!/usr/bin/env python3
"""Writes the tokenizers and recorded encodings beside this file.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3
    venv/bin/python make_testdata.py

Each NAME.json is a small tokenizer trained on the texts below, each NAME.encodings.json what the
tokenizers library makes of some texts: ids without and with special tokens, ids with special tokens
in the text taken as text, and the decoded text without and with special tokens.
"""
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers import processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = [
    "The river turns the wheel and the wheel turns the stone.",
    "A mill grinds grain; the miller hears the water all day long.",
    "Der Fluss treibt das Rad, größer und schneller als zuvor.",
    "L'été dernier, nous avons mangé une crêpe à côté du moulin.",
    "水车转动，石磨磨麦。水車が回り、石臼が麦を挽く。",
    "Привет, мельница! Колесо вращается.",
    "int main() {\n    return 0;\n}\n\nfor (int i = 0; i < 10; ++i) {\n\tgrind(i);\n}\n",
    "It's 12345 sacks, they've ground 67 and he'll grind 890 more.",
] * 20
TEXTS = [
    "", " ", "  ", "\n", "a", "Hello, world!", " hello", "hello ", "The wheel turns the stone.",
    "the  mill   grinds\n\n\ngrain", "\tint main() {\n    return 0;\n}", "it's they'VE he'll I'M",
    "12345 67.89 1,000,000 2024-11-29", "größer Straße ÄÖÜ é e\u0301 \u212b", "水车转动，石磨",
    "水車が回り、石臼が麦を挽く。", "Привет, мельница!", "مرحبا بالعالم", "नमस्ते", "한국어",
    "😀 👩‍👩‍👧 ❤️", "a\u00a0b\u3000c\u200bd\u2028e", "\r\n \r\n", "<s>The</s>mill<|im_end|> x",
    "<s", "<|im_end|", "</s></s>", "  <s>  a  </s>  ", "▁ ▁▁x▁", "Ġ Ċ", "<0x41><unk>", "x\u0000y",
    "\U00010d40\U00010d50\U0001ccf0", "ſ's 'ſ K İ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the" * 30, "Hello<B>World <B> and <Bx>", "\ufffd\ufeff", "...!!?--->", "_snake_case_ CamelCase",
]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<s>", "</s>", "<|im_end|>"]
BYTES = ["<0x%02X>" % byte for byte in range(256)]


def train(pre_tokenizer, vocab_size, special, alphabet=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=special,
                                  initial_alphabet=list(alphabet), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def edited(tokenizer, model=(), **members):
    spec = json.loads(tokenizer.to_str())
    spec.update(members)
    spec["model"].update(model)
    return Tokenizer.from_str(json.dumps(spec))


def byte_level(pre_tokenizer, vocab_size=340):
    tokenizer = train(pre_tokenizer, vocab_size, SPECIAL, pre.ByteLevel.alphabet())
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def gpt2():
    tokenizer = byte_level(pre.ByteLevel(add_prefix_space=True))
    tokenizer.add_tokens([AddedToken("<B>", single_word=True, lstrip=True, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("World", rstrip=True)])
    return tokenizer


def llama3():
    split = pre.Split(Regex(LLAMA3), "isolated")
    tokenizer = byte_level(pre.Sequence([split, pre.ByteLevel(False, use_regex=False)]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(),
        processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)]),
    ])
    return edited(tokenizer, {"ignore_merges": True})


def smollm():
    return byte_level(pre.Sequence([pre.Digits(True), pre.ByteLevel(False)]))


def sentencepiece(split, scheme):
    tokenizer = train(pre.Metaspace(prepend_scheme=scheme, split=split), 460,
                      ["<unk>"] + SPECIAL + BYTES)
    spec = json.loads(tokenizer.to_str())
    kept = [token for token in spec["added_tokens"] if token["content"] not in BYTES]
    model = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    tokenizer = edited(tokenizer, model, added_tokens=kept)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def metaspace():
    tokenizer = sentencepiece(split=True, scheme="first")
    tokenizer.decoder = decoders.Sequence([
        decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"), decoders.Fuse()])
    return tokenizer


def llama2():
    tokenizer = sentencepiece(split=False, scheme="always")
    tokenizer = edited(tokenizer, pre_tokenizer=None)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    return tokenizer


def record(tokenizer, text):
    def encode(special):
        return tokenizer.encode(text, add_special_tokens=special).ids

    ids, with_special = encode(False), encode(True)
    tokenizer.encode_special_tokens = True
    plain = encode(False)
    tokenizer.encode_special_tokens = False
    return {"text": text, "ids": ids, "ids_with_special": with_special, "ids_plain": plain,
            "decoded": tokenizer.decode(ids), "decoded_all": tokenizer.decode(ids, False)}


def main():
    for make in (gpt2, llama3, smollm, metaspace, llama2):
        tokenizer = make()
        stem = os.path.join(HERE, make.__name__)
        with open(stem + ".json", "w", encoding="utf-8") as file:
            spec = json.loads(tokenizer.to_str())
            json.dump(spec, file, ensure_ascii=False, separators=(",", ":"))
            file.write("\n")
        with open(stem + ".encodings.json", "w", encoding="utf-8") as file:
            lines = [json.dumps(record(tokenizer, text), separators=(",", ":")) for text in TEXTS]
            file.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
