"""make_tiny OUT_DIR: a small LLaMA checkpoint with random weights, for tests. Standard library."""

import argparse
import pathlib
import random
import struct
import sys

from hf_convert import folder, safetensors_file
from hf_convert.errors import ConvertError
from hf_convert.tiny_tokenizer import FIRST_FREE_ID, tokenizer_config, tokenizer_json

_DTYPES = {"bf16": ("BF16", 2, "bfloat16"), "f16": ("F16", 2, "float16"), "f32": ("F32", 4, "float32")}


def config_of(args):
    """config.json of the model that the flags describe."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": args.attention_bias,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": args.head_dim or args.hidden // args.heads,
        "hidden_act": "silu",
        "hidden_size": args.hidden,
        "intermediate_size": args.intermediate,
        "max_position_embeddings": args.max_position,
        "mlp_bias": args.mlp_bias,
        "model_type": "llama",
        "num_attention_heads": args.heads,
        "num_hidden_layers": args.layers,
        "num_key_value_heads": args.kv_heads or args.heads,
        "rms_norm_eps": 1e-5,
        "rope_scaling": _rope_scaling(args.rope, args.rope_factor),
        "rope_theta": args.rope_theta,
        "tie_word_embeddings": args.tie,
        "torch_dtype": _DTYPES[args.dtype][2],
        "vocab_size": args.vocab,
    }


def _rope_scaling(kind, factor):
    if kind == "default":
        return None
    scaling = {"rope_type": kind, "factor": factor}
    if kind == "llama3":
        scaling.update(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
    return scaling


def check(config):
    """Refuses sizes that no model has."""
    for key, value in config.items():
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise ConvertError(f"{key} is {value}, want at least 1")
    if config["num_attention_heads"] % config["num_key_value_heads"]:
        raise ConvertError("the number of kv heads does not divide the number of heads")
    if config["head_dim"] % 2:
        raise ConvertError(f"head_dim is {config['head_dim']}, want an even number")


def shapes(config):
    """[(name, shape)] of all tensors, in the order of the model."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q_rows = config["num_attention_heads"] * config["head_dim"]
    kv_rows = config["num_key_value_heads"] * config["head_dim"]
    linears = (
        ("self_attn.q_proj", q_rows, hidden, config["attention_bias"]),
        ("self_attn.k_proj", kv_rows, hidden, config["attention_bias"]),
        ("self_attn.v_proj", kv_rows, hidden, config["attention_bias"]),
        ("self_attn.o_proj", hidden, q_rows, config["attention_bias"]),
        ("mlp.gate_proj", inner, hidden, config["mlp_bias"]),
        ("mlp.up_proj", inner, hidden, config["mlp_bias"]),
        ("mlp.down_proj", hidden, inner, config["mlp_bias"]),
    )
    result = [("model.embed_tokens.weight", [config["vocab_size"], hidden])]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, rows, cols, bias in linears:
            result.append((f"{prefix}{name}.weight", [rows, cols]))
            if bias:
                result.append((f"{prefix}{name}.bias", [rows]))
        result.append((f"{prefix}input_layernorm.weight", [hidden]))
        result.append((f"{prefix}post_attention_layernorm.weight", [hidden]))
    result.append(("model.norm.weight", [hidden]))
    if not config["tie_word_embeddings"]:
        result.append(("lm_head.weight", [config["vocab_size"], hidden]))
    return result


def random_bytes(name, count, dtype, seed):
    """`count` random elements: around 1 for norms, else with the spread of a small trained model."""
    source = random.Random(f"{seed}:{name}")
    center, spread = (1.0, 0.1) if name.endswith("norm.weight") else (0.0, 0.08)
    values = [source.gauss(center, spread) for _ in range(count)]
    if dtype == "f16":
        return struct.pack(f"<{count}e", *values)
    packed = struct.pack(f"<{count}f", *values)
    return packed if dtype == "f32" else to_bf16(packed)


def to_bf16(packed):
    """bf16 bytes of finite float32 bytes, rounded to nearest even."""
    count = len(packed) // 4
    words = struct.unpack(f"<{count}I", packed)
    return struct.pack(f"<{count}H", *((w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words))


def write_weights(out, config, args):
    """One model.safetensors, or `args.shards` files and their index."""
    tag, size, _ = _DTYPES[args.dtype]
    tensors = []
    for name, shape in shapes(config):
        count = 1
        for extent in shape:
            count *= extent
        produce = lambda name=name, count=count: random_bytes(name, count, args.dtype, args.seed)
        tensors.append((name, tag, shape, count * size, produce))
    if args.shards == 1:
        safetensors_file.write(out / "model.safetensors", tensors)
        return
    weight_map = {}
    for shard in range(args.shards):
        part = tensors[
            len(tensors) * shard // args.shards : len(tensors) * (shard + 1) // args.shards
        ]
        file_name = f"model-{shard + 1:05}-of-{args.shards:05}.safetensors"
        safetensors_file.write(out / file_name, part)
        weight_map.update({tensor[0]: file_name for tensor in part})
    total = sum(tensor[3] for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    folder.write_json(out / "model.safetensors.index.json", index)


def parse_args(argv):
    """The flags; defaults give a model of some 100 kB."""
    parser = argparse.ArgumentParser(
        prog="make_tiny", description="Makes a small LLaMA checkpoint with random weights."
    )
    parser.add_argument("out", metavar="OUT_DIR", type=pathlib.Path)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--intermediate", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, help="default: as many as heads")
    parser.add_argument("--head-dim", type=int, help="default: hidden / heads")
    parser.add_argument("--vocab", type=int, default=320)
    parser.add_argument("--max-position", type=int, default=1024)
    parser.add_argument("--rope", choices=("default", "linear", "llama3"), default="default")
    parser.add_argument("--rope-factor", type=float, default=8.0)
    parser.add_argument("--rope-theta", type=float, default=10000.0)
    parser.add_argument("--tie", action="store_true", help="lm_head is the embedding")
    parser.add_argument("--attention-bias", action="store_true")
    parser.add_argument("--mlp-bias", action="store_true")
    parser.add_argument("--dtype", choices=tuple(_DTYPES), default="bf16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument(
        "--tokenizer", action="store_true", help="also a byte-level tokenizer with ChatML tokens"
    )
    return parser.parse_args(argv)


def make(args):
    """Writes the folder, atomically."""
    config = config_of(args)
    check(config)
    if not 1 <= args.shards <= len(shapes(config)):
        raise ConvertError(f"--shards {args.shards}: want 1 to {len(shapes(config))}")
    if args.tokenizer and args.vocab < FIRST_FREE_ID:
        raise ConvertError(f"--vocab {args.vocab}: the tokenizer needs at least {FIRST_FREE_ID}")
    with folder.atomic_folder(args.out) as out:
        folder.write_json(out / "config.json", config)
        folder.write_json(out / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
        if args.tokenizer:
            folder.write_json(out / "tokenizer.json", tokenizer_json())
            folder.write_json(out / "tokenizer_config.json", tokenizer_config())
        write_weights(out, config, args)


def main(argv=None):
    """Prints the folder as the last line."""
    args = parse_args(argv)
    try:
        make(args)
    except (ConvertError, OSError) as error:
        print(f"make_tiny: {error}", file=sys.stderr)
        return 1
    print(args.out.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main())
