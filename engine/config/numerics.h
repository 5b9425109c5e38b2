// What arithmetic a model is run in.
#ifndef ENGINE_CONFIG_NUMERICS_H_
#define ENGINE_CONFIG_NUMERICS_H_

#include <cstdint>
#include <string_view>

namespace millrace {

// Only models that were trained for quantised activations have two.
enum class Numerics : uint8_t {
  kReference,  // nothing is rounded below the device's activations
  kServing,    // activations of quantised matrices and the indexer's operands are quantised
};

constexpr std::string_view NumericsName(Numerics numerics) {
  return numerics == Numerics::kReference ? "reference" : "serving";
}

}  // namespace millrace

#endif  // ENGINE_CONFIG_NUMERICS_H_
