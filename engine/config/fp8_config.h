// How a checkpoint stores matrices as FP8 E4M3, as its config says.
#ifndef ENGINE_CONFIG_FP8_CONFIG_H_
#define ENGINE_CONFIG_FP8_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/module_patterns.h"

namespace millrace {

// What of a matrix shares a scale; a weight is code * scale.
enum class Fp8WeightScale : uint8_t {
  kBlock,    // 128 x 128, the last ones cut short: scale [ceil(N / 128), ceil(K / 128)]
  kChannel,  // an output: [N, 1] or [N]
  kTensor,   // all: [] or [1]
};

struct Fp8Scheme {
  Fp8WeightScale weight = Fp8WeightScale::kBlock;
  const char* scale_name = "weight_scale";  // of the tensor beside "weight", a literal
  // "input_scale" beside "weight", [] or [1], divides the activations. Otherwise they get scales of
  // their own: of 128 of a token where the weight has blocks, else of a token.
  bool static_input = false;

  friend bool operator==(const Fp8Scheme& a, const Fp8Scheme& b) {
    return a.weight == b.weight && a.static_input == b.static_input &&
           std::string(a.scale_name) == b.scale_name;
  }
};

struct Fp8Group {
  // Of which linear layers; none: of all.
  std::optional<ModulePatterns> targets;
  Fp8Scheme scheme;
};

struct Fp8Config {
  std::string method;            // quant_method: "fp8", "compressed-tensors", "modelopt"
  std::vector<Fp8Group> groups;  // the first that matches counts
  ModulePatterns excluded;       // whatever the groups say
  bool cache = false;            // it was made to be served with a cache of E4M3

  // Of a linear layer of the decoder ("model.layers.0.mlp.up_proj"); none where it is not FP8.
  std::optional<Fp8Scheme> SchemeOf(const std::string& module) const;
};

}  // namespace millrace

#endif  // ENGINE_CONFIG_FP8_CONFIG_H_
