// For the tests of Fp8Gemm: a call's operands, and the GPU's kernels by name.
#ifndef KERNELS_FP8_GEMM_TEST_TENSORS_H_
#define KERNELS_FP8_GEMM_TEST_TENSORS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/device.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/fp8_gemm/fp8_gemm_cases.h"
#include "kernels/fp8_gemm/fp8_gemm_impl.h"
#include "kernels/testing/fp8_operands.h"
#include "kernels/testing/fp8_sum.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {

inline constexpr Fp8Units kFp8AllUnits[] = {Fp8Units::kBlocks, Fp8Units::kTokensAndOutputs,
                                            Fp8Units::kTokensAndAll, Fp8Units::kAllAndOutputs,
                                            Fp8Units::kAll};
// The ones that checkpoints have.
inline constexpr Fp8Units kFp8ServedUnits[] = {Fp8Units::kBlocks, Fp8Units::kTokensAndOutputs,
                                               Fp8Units::kAll};

struct Fp8GemmTensors : Fp8Operands {
  Fp8GemmTensors(Device& device, const Fp8GemmCase& c, Fp8Units of, DType y_dtype)
      : Fp8Operands(device, {c.tokens, c.inputs, c.outputs, c.padding, c.scale_padding}, of, 0.001,
                    0.01),
        y(device, y_dtype, {c.tokens, c.outputs}, c.padding),
        flags(device, DType::kI32, {Fp8GemmFlags(device).value()}) {
    flags.SetAll(0);
  }

  Fp8GemmArgs Args() const { return Args(shape.tokens); }
  // Of the first tokens.
  Fp8GemmArgs Args(int64_t tokens) const {
    TensorView scale = x_scale.view();
    if (blocks()) {
      scale = scale.Cols(0, tokens);
    } else if (scale.dim(0) > 1) {
      scale = scale.Rows(0, tokens);
    }
    return {.x = x.view().Rows(0, tokens),
            .x_scale = scale,
            .weight = weight.view(),
            .weight_scale = weight_scale.view(),
            .y = y.view().Rows(0, tokens),
            .flags = flags.view(),
            .scales = blocks() ? Fp8GemmScales::kBlocks : Fp8GemmScales::kVectors};
  }

  void ExpectGuardsIntact() const {
    Fp8Operands::ExpectGuardsIntact();
    EXPECT_TRUE(y.GuardsIntact());
    EXPECT_TRUE(flags.GuardsIntact());
  }

  GuardedTensor y, flags;
};

// Every `step`-th of all outputs. `cuts`: as of Fp8Product.
inline Fp8Sums WantFp8Gemm(const Fp8GemmTensors& t, bool cuts, int64_t step = 1) {
  const Fp8Product product(t, cuts);
  Fp8Sums sums;
  for (int64_t i = 0; i < t.shape.tokens * t.shape.outputs; i += step) {
    sums.push_back(product.At(i / t.shape.outputs, i % t.shape.outputs));
  }
  return sums;
}

// A kernel and how many tokens it is given.
struct Fp8GemmWay {
  const char* name;
  Fp8GemmKernel kernel;
  int64_t tokens;
  bool of_blocks, of_vectors;  // the scales it takes

  bool Takes(Fp8Units units) const { return units == Fp8Units::kBlocks ? of_blocks : of_vectors; }
  // Where x_scale lies on 16 bytes.
  bool TakenOn(int32_t compute_capability) const {
    if (kernel == Fp8GemmKernel::kGeneric) return true;
    if (kernel == Fp8GemmKernel::kMma) return compute_capability >= 80;
    if (kernel == Fp8GemmKernel::kSkinny) return compute_capability >= 89;
    return compute_capability == 90;
  }
};

// K is a multiple of 128 for all of them.
inline constexpr Fp8GemmWay kFp8GemmWays[] = {
    {"tiles", Fp8GemmKernel::kTiles, 132, true, true},
    {"few", Fp8GemmKernel::kFew, 100, true, true},
    {"m64", Fp8GemmKernel::kM64, 40, true, false},
    {"m64 full", Fp8GemmKernel::kM64, 64, true, false},
    {"split 2", Fp8GemmKernel::kSplit, 2, true, true},
    {"split 24", Fp8GemmKernel::kSplit, 24, true, true},
    {"split 64", Fp8GemmKernel::kSplit, 64, false, true},
    {"ring", Fp8GemmKernel::kRing, 8, true, true},
    {"skinny", Fp8GemmKernel::kSkinny, 8, true, true},
    {"mma 8", Fp8GemmKernel::kMma, 8, true, true},
    {"mma 132", Fp8GemmKernel::kMma, 132, true, true},
    {"plain", Fp8GemmKernel::kGeneric, 5, true, true},
};
inline constexpr int64_t kFp8GemmWaysTokens = 132;  // the most

// Those of the device, with scales of such units. On the CPU one, which Fp8GemmBy() takes for what
// there is.
inline std::vector<Fp8GemmWay> Fp8GemmWays(Device& device, Fp8Units units) {
  if (device.type() == DeviceType::kCpu) {
    return {{"CPU", Fp8GemmKernel::kGeneric, 8, true, true}};
  }
  std::vector<Fp8GemmWay> ways;
  const int32_t capability = device.Properties().value().compute_capability;
  for (const Fp8GemmWay& way : kFp8GemmWays) {
    if (way.Takes(units) && way.TakenOn(capability)) ways.push_back(way);
  }
  return ways;
}

inline absl::Status Fp8GemmBy(Fp8GemmKernel kernel, const OpContext& ctx, const Fp8GemmArgs& args) {
  if (ctx.device.type() == DeviceType::kCpu) return Fp8Gemm(ctx, args);
  return Fp8GemmCudaBy(kernel, ctx, args);
}

// For tests that are long, of the CPUs one: its row is the same for all instruction sets.
inline std::vector<DeviceUnderTest> Fp8GemmDevices() {
  std::vector<DeviceUnderTest> devices = DevicesUnderTest(CudaRow::kPresent);
  const auto is_cpu = [](const DeviceUnderTest& d) { return d.type == DeviceType::kCpu; };
  const auto last = std::find_if(devices.rbegin(), devices.rend(), is_cpu);
  devices.erase(devices.begin(), last.base() - 1);
  return devices;
}

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_TEST_TENSORS_H_
