"""convert_gguf IN.gguf OUT_DIR: a LLaMA model in GGUF as a Hugging Face folder."""

import argparse
import pathlib
import sys

from hf_convert import folder, safetensors_file
from hf_convert.errors import ConvertError
from hf_convert.gguf_llama import GgufLlama
from hf_convert.gguf_tokenizer import GgufTokenizer

_BF16_BYTES = 2


def convert(source, target, rope_frequency_dtype="float32"):
    """Writes the folder `target`, atomically."""
    model = GgufLlama(source)
    if rope_frequency_dtype != "float32":
        model.config["rope_frequency_dtype"] = rope_frequency_dtype
    tokenizer = GgufTokenizer(source, model.field)
    with folder.atomic_folder(target) as out:
        folder.write_json(out / "config.json", model.config)
        tokens = ("bos_token_id", "eos_token_id", "pad_token_id")
        generation = {key: model.config[key] for key in tokens if model.config[key] is not None}
        folder.write_json(out / "generation_config.json", generation)
        folder.write_json(out / "tokenizer.json", tokenizer.tokenizer_json())
        folder.write_json(out / "tokenizer_config.json", tokenizer.tokenizer_config())
        folder.write_json(out / "special_tokens_map.json", tokenizer.special_tokens_map())
        write_weights(model, out / "model.safetensors")


def write_weights(model, path):
    """Dequantises tensor by tensor into one bf16 file, with a line of progress."""
    tensors = []
    names = model.names()
    for index, name in enumerate(names):
        shape = model.shape(name)
        size = _BF16_BYTES
        for extent in shape:
            size *= extent
        tensors.append((name, "BF16", shape, size, _producer(model, name, index, len(names))))
    safetensors_file.write(path, tensors)
    if sys.stderr.isatty():
        folder.progress("")


def _producer(model, name, index, count):
    def produce():
        if sys.stderr.isatty():
            print(f"\r\033[K  {index + 1}/{count} {name}", end="", file=sys.stderr, flush=True)
        elif index % 50 == 0:
            folder.progress(f"  {index + 1}/{count} {name}")
        return model.bf16_bytes(name)

    return produce


def main():
    """Parses flags, converts, verifies; prints the folder as the last line."""
    parser = argparse.ArgumentParser(
        prog="convert_gguf",
        description="Converts a LLaMA model with byte-level BPE tokenizer from GGUF to a Hugging "
        "Face folder (bf16 safetensors, tokenizer.json, config.json).",
    )
    parser.add_argument("gguf", metavar="IN.gguf", type=pathlib.Path)
    parser.add_argument("out", metavar="OUT_DIR", type=pathlib.Path)
    parser.add_argument(
        "--verify", metavar="tensors.json", help="then compare each tensor's shape and SHA-256"
    )
    parser.add_argument(
        "--rope-frequency-dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="bfloat16: the model's outputs are those of one cast to bf16 as a whole, which rounds "
        "the rotary frequencies too (a key of config.json that only Millrace reads)",
    )
    args = parser.parse_args()
    try:
        if not args.gguf.is_file():
            raise ConvertError(f"{args.gguf}: no such file")
        if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
            raise ConvertError(f"{args.out}: exists; give a folder that does not")
        folder.progress(f"converting {args.gguf.name}")
        convert(args.gguf, args.out, args.rope_frequency_dtype)
        if args.verify:
            folder.verify(args.out, args.verify)
    except (ConvertError, OSError) as error:
        print(f"convert_gguf: {error}", file=sys.stderr)
        return 1
    print(args.out.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main())
