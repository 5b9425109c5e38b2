// Weights of LLaMA's linear layers in FP8, with scales as Fp8Gemm takes them: read as the
// checkpoint stores them, or made from floats on the way. A rank reads the bytes of its own part.
#ifndef ENGINE_LAYERS_FP8_WEIGHT_H_
#define ENGINE_LAYERS_FP8_WEIGHT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/config/fp8_config.h"
#include "engine/layers/stored_weight.h"
#include "engine/layers/weight_loader.h"
#include "kernels/fp8_gemm/fp8_gemm.h"

namespace millrace {

enum class LinearForm : uint8_t {
  kPlain,      // floats in the source and in memory
  kWidened,    // FP8 in the source, floats in memory: where activations are not rounded
  kStored,     // FP8 in both
  kQuantised,  // floats in the source, FP8 in memory
};

struct LinearPlan {
  LinearForm form = LinearForm::kPlain;
  Fp8Scheme scheme;  // kWidened, kStored
};

// How the matrices below `prefixes`, which make up one product, are held. InvalidArgument, naming
// two of them, when they are not all of one scheme.
absl::StatusOr<LinearPlan> PlanLinear(absl::Span<const std::string> prefixes,
                                      const LoadContext& ctx);

// Columns and rows that a rank's part of a matrix should be a multiple of: whole blocks of scales.
int64_t CutUnit(const LinearPlan& plan);

struct Fp8Weight {
  // Rows of the weight for one product. All of them, unless rows were cut inside blocks of scales
  // or lie behind such: then each run of rows whose blocks begin with it.
  struct Run {
    Range rows;
    Range scale_rows;
  };

  Weight codes;  // [N, K] u8
  Weight scale;  // f32, by `scales`: [blocks of rows, blocks of columns] or [N]
  Weight input;  // [1] f32, the activations' scale; empty where they have scales of their own
  Fp8GemmScales scales = Fp8GemmScales::kVectors;
  std::vector<Run> runs;
};

// The parts, stacked, as a plan of form kStored or kQuantised says. Scales of outputs and of whole
// matrices become a vector of outputs. Of several input scales the largest counts.
// InvalidArgument, naming the tensor: as FindFp8Layout; columns cut inside blocks of scales; scales
// that are negative, NaN or infinite. REQUIRES: at least one part, all with the same columns.
absl::StatusOr<Fp8Weight> LoadFp8(absl::Span<const StoredPart> parts, const LinearPlan& plan,
                                  LoadContext& ctx);

// The parts, stacked, as ctx.weight_dtype, of a plan of form kWidened. Errors as LoadFp8.
absl::StatusOr<Weight> LoadWidened(absl::Span<const StoredPart> parts, const Fp8Scheme& scheme,
                                   LoadContext& ctx);

}  // namespace millrace

#endif  // ENGINE_LAYERS_FP8_WEIGHT_H_
