"""Hugging Face tokenizer files from the tokenizer in a GGUF file."""

from hf_convert.errors import ConvertError

# tokenizer.ggml.token_type
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5

_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_level(use_regex):
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


# tokenizer.ggml.pre -> how text is cut before merging, and what goes with it.
_FAMILIES = {
    "gpt-2": {"pre": _byte_level(True), "bos": False, "ignore_merges": False},
    "smollm": {
        "pre": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                _byte_level(True),
            ],
        },
        "bos": False,
        "ignore_merges": False,
    },
    "llama-bpe": {
        "pre": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": _LLAMA3_PATTERN},
                    "behavior": "Isolated",
                    "invert": False,
                },
                _byte_level(False),
            ],
        },
        "bos": True,
        "ignore_merges": True,
    },
}


class GgufTokenizer:
    """The tokenizer of a model. `field(key[, default])` reads the GGUF's metadata."""

    def __init__(self, path, field):
        model = field("tokenizer.ggml.model")
        if model != "gpt2":
            raise ConvertError(
                f"{path}: tokenizer.ggml.model is '{model}'; only byte-level BPE ('gpt2') is converted"
            )
        pre = field("tokenizer.ggml.pre", "gpt-2")
        if pre not in _FAMILIES:
            raise ConvertError(
                f"{path}: tokenizer.ggml.pre is '{pre}'; converted are {', '.join(_FAMILIES)}"
            )
        self._family = _FAMILIES[pre]
        self._tokens = field("tokenizer.ggml.tokens")
        self._types = field("tokenizer.ggml.token_type", [_NORMAL] * len(self._tokens))
        self._merges = field("tokenizer.ggml.merges")
        self._add_bos = field("tokenizer.ggml.add_bos_token", self._family["bos"])
        self._chat_template = field("tokenizer.chat_template", None)
        self._context = field("llama.context_length")
        self._roles = {}
        for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
            token = field(f"tokenizer.ggml.{key}_token_id", None)
            if token is not None:
                if not 0 <= token < len(self._tokens):
                    raise ConvertError(
                        f"{path}: tokenizer.ggml.{key}_token_id is {token}, "
                        f"the vocabulary has {len(self._tokens)} tokens"
                    )
                self._roles[f"{role}_token"] = self._tokens[token]
        if len(self._types) != len(self._tokens):
            raise ConvertError(f"{path}: tokenizer.ggml.token_type and tokens differ in length")
        if self._add_bos and "bos_token" not in self._roles:
            raise ConvertError(f"{path}: add_bos_token is set without a bos_token_id")

    def tokenizer_json(self):
        """The content of tokenizer.json."""
        vocab = {}
        for token, (text, kind) in enumerate(zip(self._tokens, self._types)):
            if kind != _UNUSED:
                vocab[text] = token
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": token, **self._added(token)} for token in self._added_ids()
            ],
            "normalizer": None,
            "pre_tokenizer": self._family["pre"],
            "post_processor": self._post_processor(),
            "decoder": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            },
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": "",
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": self._family["ignore_merges"],
                "vocab": vocab,
                "merges": self._merges,
            },
        }

    def tokenizer_config(self):
        """The content of tokenizer_config.json."""
        config = {
            "add_bos_token": self._add_bos,
            "add_prefix_space": False,
            "added_tokens_decoder": {str(token): self._added(token) for token in self._added_ids()},
            "clean_up_tokenization_spaces": False,
            "model_max_length": self._context,
            # Reads tokenizer.json as it stands; the class of GPT-2 would put its own splitter in.
            "tokenizer_class": "PreTrainedTokenizerFast",
            **self._roles,
        }
        if self._chat_template is not None:
            config["chat_template"] = self._chat_template
        return config

    def special_tokens_map(self):
        """The content of special_tokens_map.json."""
        return dict(self._roles)

    def _added_ids(self):
        return [i for i, kind in enumerate(self._types) if kind in (_CONTROL, _USER_DEFINED)]

    def _added(self, token):
        return {
            "content": self._tokens[token],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": self._types[token] == _CONTROL,
        }

    def _post_processor(self):
        first = {"Sequence": {"id": "A", "type_id": 0}}
        second = {"Sequence": {"id": "B", "type_id": 1}}
        single, pair, special = [first], [first, second], {}
        if self._add_bos:
            bos = self._roles["bos_token"]
            single = [{"SpecialToken": {"id": bos, "type_id": 0}}, first]
            pair = single + [{"SpecialToken": {"id": bos, "type_id": 1}}, second]
            special = {bos: {"id": bos, "ids": [self._tokens.index(bos)], "tokens": [bos]}}
        return {
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair,
            "special_tokens": special,
        }
