"""A model folder small enough for tests: one token a byte, ChatML, random weights."""

import json
import os

VOCAB = 320
END, BEGIN = 256, 257  # <|im_end|>, <|im_start|>

CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_spellings():
    """How byte-level tokenizers spell the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spellings, moved = {}, 256
    for byte in range(256):
        if byte in printable:
            spellings[byte] = chr(byte)
        else:
            spellings[byte] = chr(moved)
            moved += 1
    return spellings


def special(token_id, content):
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def tokenizer_json():
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special(END, "<|im_end|>"), special(BEGIN, "<|im_start|>")],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {spelling: byte for byte, spelling in byte_spellings().items()},
            "merges": [],
        },
    }


def config_json():
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }


def write(folder):
    """Writes the folder; its weights are to be made up (--load-format dummy)."""
    os.makedirs(folder, exist_ok=True)
    files = {
        "tokenizer.json": tokenizer_json(),
        "config.json": config_json(),
        "generation_config.json": {"eos_token_id": END, "temperature": 0.75},
        "tokenizer_config.json": {
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "chat_template": CHAT_TEMPLATE,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    }
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            json.dump(content, out)
    return folder
