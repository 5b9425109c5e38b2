"""A byte-level BPE tokenizer of 271 tokens: ChatML's special ones, all bytes, a few merges."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Of characters that byte-level BPE writes for bytes; "Ġ" is the space.
_MERGES = (
    ("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("e", "r"), ("a", "n"),
    ("an", "d"), ("Ġ", "and"), ("o", "n"), ("Ġ", "a"), ("in", "g"), ("l", "l"),
)
FIRST_FREE_ID = len(SPECIAL) + 256 + len(_MERGES)

_CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_characters():
    """The 256 characters of GPT-2's byte-level alphabet, by byte.

    Printable bytes stand for themselves; the others get the code points from 256 up, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    shifted = iter(range(256, 512))
    return [chr(byte if byte in printable else next(shifted)) for byte in range(256)]


def _added(content):
    return {
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def tokenizer_json():
    """The content of tokenizer.json."""
    tokens = [*SPECIAL, *byte_characters(), *(left + right for left, right in _MERGES)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **_added(text)} for i, text in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": True},
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(tokens)},
            "merges": [f"{left} {right}" for left, right in _MERGES],
        },
    }


def tokenizer_config():
    """The content of tokenizer_config.json."""
    return {
        "added_tokens_decoder": {str(i): _added(text) for i, text in enumerate(SPECIAL)},
        "bos_token": SPECIAL[1],
        "chat_template": _CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": SPECIAL[2],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
