"""Reads a LLaMA model out of a GGUF file: its Hugging Face config and its tensors."""

import gguf
import numpy as np

from hf_convert.errors import ConvertError

# GGUF name -> Hugging Face name, of the tensors of block N and of the whole model.
_BLOCK_TENSORS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_MODEL_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_REQUIRED = object()


class GgufLlama:
    """One open GGUF file. Refuses what is not a plain LLaMA, by name."""

    def __init__(self, path):
        try:
            self._reader = gguf.GGUFReader(str(path))
        except (OSError, ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
            raise ConvertError(f"{path}: not a readable GGUF file: {error}") from error
        self.path = path
        architecture = self.field("general.architecture")
        if architecture != "llama":
            raise ConvertError(
                f"{path}: general.architecture is '{architecture}'; only 'llama' is converted"
            )
        if self.field("llama.expert_count", 0):
            raise ConvertError(f"{path}: llama.expert_count: mixtures of experts are not converted")
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.config = self._make_config()
        self._names = self._map_names()

    def field(self, key, default=_REQUIRED):
        """The value of a metadata key as a Python value."""
        field = self._reader.get_field(key)
        if field is None:
            if default is _REQUIRED:
                raise ConvertError(f"{self.path}: metadata key '{key}' is missing")
            return default
        return field.contents()

    def names(self):
        """Hugging Face names of all tensors, in the order of the model."""
        return list(self._names)

    def shape(self, name):
        """Shape of a tensor by its Hugging Face name, outermost dimension first."""
        return [int(n) for n in reversed(self._tensors[self._names[name]].shape)]

    def bf16_bytes(self, name):
        """A tensor's elements as bf16, row-major, with GGUF's row order of q and k undone."""
        tensor = self._tensors[self._names[name]]
        try:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise ConvertError(
                f"{self.path}: {tensor.name} is stored as {tensor.tensor_type.name}, "
                "which the gguf package cannot dequantise"
            ) from error
        values = np.asarray(values, dtype=np.float32).reshape(self.shape(name))
        if ".q_proj." in name:
            values = interleaved_to_halves(values, self.config["num_attention_heads"])
        elif ".k_proj." in name:
            values = interleaved_to_halves(values, self.config["num_key_value_heads"])
        return float32_to_bf16(values).tobytes()

    def _make_config(self):
        heads = int(self.field("llama.attention.head_count"))
        hidden = int(self.field("llama.embedding_length"))
        rope = int(self.field("llama.rope.dimension_count", hidden // heads))
        head_dim = int(self.field("llama.attention.key_length", rope))
        if head_dim != int(self.field("llama.attention.value_length", head_dim)) or rope != head_dim:
            raise ConvertError(
                f"{self.path}: key, value and rope dimensions of a head differ; not a plain LLaMA"
            )
        bos = self.field("tokenizer.ggml.bos_token_id", None)
        eos = self.field("tokenizer.ggml.eos_token_id", None)
        theta = self.field("llama.rope.freq_base", 10000.0)
        return {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": self._has_bias(("attn_q", "attn_k", "attn_v", "attn_output")),
            "attention_dropout": 0.0,
            "bos_token_id": bos,
            "eos_token_id": eos,
            "head_dim": head_dim,
            "hidden_act": "silu",
            "hidden_size": hidden,
            "initializer_range": 0.02,
            "intermediate_size": int(self.field("llama.feed_forward_length")),
            "max_position_embeddings": int(self.field("llama.context_length")),
            "mlp_bias": self._has_bias(("ffn_gate", "ffn_up", "ffn_down")),
            "model_type": "llama",
            "num_attention_heads": heads,
            "num_hidden_layers": int(self.field("llama.block_count")),
            "num_key_value_heads": int(self.field("llama.attention.head_count_kv", heads)),
            "pad_token_id": self.field("tokenizer.ggml.padding_token_id", None),
            "pretraining_tp": 1,
            "rms_norm_eps": shortest(self.field("llama.attention.layer_norm_rms_epsilon")),
            "rope_scaling": self._rope_scaling(),
            "rope_theta": shortest(theta),
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "vocab_size": len(self.field("tokenizer.ggml.tokens")),
        }

    def _rope_scaling(self):
        kind = self.field("llama.rope.scaling.type", "none")
        if kind == "none":
            return None
        if kind == "linear":
            factor = shortest(self.field("llama.rope.scaling.factor"))
            return {"rope_type": "linear", "factor": factor}
        raise ConvertError(f"{self.path}: llama.rope.scaling.type '{kind}' is not converted")

    def _has_bias(self, parts):
        present = [part for part in parts if f"blk.0.{part}.bias" in self._tensors]
        if present and len(present) != len(parts):
            raise ConvertError(
                f"{self.path}: biases on {', '.join(present)} only; Hugging Face's LLaMA has them "
                f"on all of {', '.join(parts)} or on none"
            )
        return bool(present)

    def _map_names(self):
        wanted = {_MODEL_TENSORS["token_embd.weight"]: "token_embd.weight"}
        for layer in range(self.config["num_hidden_layers"]):
            for theirs, ours in _BLOCK_TENSORS.items():
                group = "attention_bias" if theirs.startswith("attn") else "mlp_bias"
                kinds = ["weight"]
                if self.config[group] and not theirs.endswith("norm"):
                    kinds.append("bias")
                for kind in kinds:
                    wanted[f"model.layers.{layer}.{ours}.{kind}"] = f"blk.{layer}.{theirs}.{kind}"
        wanted["model.norm.weight"] = "output_norm.weight"
        if not self.config["tie_word_embeddings"]:
            wanted["lm_head.weight"] = "output.weight"
        missing = sorted(set(wanted.values()) - set(self._tensors))
        if missing:
            raise ConvertError(f"{self.path}: tensor '{missing[0]}' is missing")
        extra = sorted(set(self._tensors) - set(wanted.values()))
        if extra:
            raise ConvertError(f"{self.path}: tensor '{extra[0]}' is not part of a plain LLaMA")
        return wanted


def interleaved_to_halves(values, heads):
    """Reorders the rows of each head from rope pairs side by side to rope pairs half a head apart.

    GGUF's LLaMA rotates rows (2i, 2i + 1) of a head, Hugging Face's rows (i, i + d/2).
    """
    rows = values.shape[0]
    pairs = values.reshape(heads, rows // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(values.shape)


def float32_to_bf16(values):
    """bf16 bits (uint16) of float32 values, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    quiet = (bits >> 16) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype("<u2")


def shortest(value):
    """The float64 with the fewest digits that is `value` in float32: 1e-05, not 9.99999975e-06."""
    return float(str(np.float32(value)))
