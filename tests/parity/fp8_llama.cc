#include "tests/parity/fp8_llama.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "engine/parallel/shard.h"
#include "gtest/gtest.h"
#include "tests/parity/checkpoint_writer.h"
#include "tests/parity/dequantised_checkpoint.h"
#include "tests/parity/engine_runs.h"
#include "tests/parity/round_e4m3.h"

namespace millrace {
namespace {

constexpr int64_t kPatch = 64;

// Elements [begin, end) through E4M3 under `scale`, 0: one of their own.
void Round(std::vector<double>& x, size_t begin, size_t end, double scale) {
  if (scale == 0) {
    for (size_t i = begin; i < end; ++i) scale = std::max(scale, std::abs(x[i]));
    scale /= 448;
  }
  if (scale > 0) RoundE4M3(std::span(x).subspan(begin, end - begin), scale);
}

// `parts`: ranks that hold a part of x each.
void RoundInputs(QuantTarget target, int32_t parts, std::vector<double>& x) {
  if (target == QuantTarget::kFp8) {  // ranks are cut between groups
    for (size_t i = 0; i < x.size(); i += 128) Round(x, i, std::min(i + 128, x.size()), 0);
    return;
  }
  const bool given = target == QuantTarget::kFp8ModelOpt;
  for (int32_t part = 0; part < parts; ++part) {
    const Range range = BalancedRange(static_cast<int64_t>(x.size()), parts, part);
    Round(x, static_cast<size_t>(range.begin), static_cast<size_t>(range.end),
          given ? double{kFp8ActivationAmax} / 448 : 0);
  }
}

}  // namespace

std::string Fp8FormatName(QuantTarget target) {
  switch (target) {
    case QuantTarget::kFp8:
      return "blocks";
    case QuantTarget::kFp8Ct:
      return "channels";
    case QuantTarget::kFp8CtTensor:
      return "tensors";
    default:
      return "modelopt";
  }
}

TinyLlama PatchyLlama(const TinyLlamaShape& shape, uint32_t seed) {
  TinyLlama model(shape, seed);
  const std::map<std::string, WrittenTensor> plain = model.tensors();
  std::mt19937 rng(seed);
  std::uniform_int_distribution<int> exponents(-5, 1);
  for (const auto& [name, tensor] : plain) {
    if (!absl::EndsWith(name, "_proj.weight")) continue;
    WrittenTensor patchy = tensor;
    const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
    const int64_t across = (cols + kPatch - 1) / kPatch;
    std::vector<int> exponent(static_cast<size_t>((rows + kPatch - 1) / kPatch * across));
    for (int& e : exponent) e = exponents(rng);
    for (int64_t i = 0; i < rows * cols; ++i) {
      const int64_t patch = i / cols / kPatch * across + i % cols / kPatch;
      float& value = patchy.values[static_cast<size_t>(i)];
      value = std::ldexp(value, exponent[static_cast<size_t>(patch)]);
    }
    model.Set(name, std::move(patchy));
  }
  return model;
}

TinyLlama Dequantised(const TinyLlamaShape& shape, const std::string& dir) {
  TinyLlama twin(shape, 1);
  for (auto& [name, tensor] : DequantisedLlama(dir)) twin.Set(name, tensor);
  return twin;
}

void RoundAsRanks(QuantTarget target, int32_t ranks, TinyLlama& twin) {
  twin.round_inputs = [target, ranks](const std::string& projection, std::vector<double>& x) {
    const bool cut =
        absl::EndsWith(projection, ".o_proj") || absl::EndsWith(projection, ".down_proj");
    RoundInputs(target, cut ? ranks : 1, x);
  };
}

std::string Requantised(const std::string& plain, QuantTarget target, const std::string& name,
                        float activation_amax) {
  const std::string dir = MakeFolder(name + "_" + Fp8FormatName(target));
  std::filesystem::remove_all(dir);  // what an earlier run left
  const absl::StatusOr<QuantizeReport> report = QuantizeCheckpoint(
      {.input = plain, .output = dir, .target = target, .activation_amax = activation_amax});
  EXPECT_TRUE(report.ok()) << report.status();
  return dir;
}

Fp8Llama MakeFp8Llama(const TinyLlamaShape& shape, QuantTarget target, const std::string& name) {
  const std::string plain = Folder(PatchyLlama(shape, 11), name + "_plain");
  const std::string dir = Requantised(plain, target, name, kFp8ActivationAmax);
  Fp8Llama made = {plain, dir, Dequantised(shape, dir)};
  RoundAsRanks(target, 1, made.twin);
  return made;
}

}  // namespace millrace
