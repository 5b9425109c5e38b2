#include "tests/parity/fp8_llama.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>

#include "absl/strings/match.h"
#include "engine/weights/checkpoint_source.h"
#include "gtest/gtest.h"
#include "kernels/core/check.h"
#include "kernels/lowp/small_float.h"
#include "tests/parity/round_e4m3.h"

namespace millrace {
namespace {

std::vector<float> Floats(const CheckpointSource& source, const TensorInfo& tensor) {
  std::vector<Range> all;
  for (const int64_t extent : tensor.shape) all.push_back({0, extent});
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  MR_CHECK(source.Read(tensor.name, all, DType::kF32, values.data()).ok());
  return values;
}

// code * scale, by the shape of the scales: of blocks, rows, or all.
WrittenTensor Widened(const CheckpointSource& source, const TensorInfo& weight) {
  const std::string prefix = weight.name.substr(0, weight.name.rfind('.'));
  const bool blocks = source.Find(prefix + ".weight_scale_inv").ok();
  const TensorInfo scale = *source.Find(prefix + (blocks ? ".weight_scale_inv" : ".weight_scale"));
  const std::vector<float> scales = Floats(source, scale);
  const auto rows = weight.shape[0], cols = weight.shape[1];
  WrittenTensor w = {.shape = weight.shape, .type = WrittenTensor::Type::kF32};
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t row = i / cols, col = i % cols;
    const int64_t at = blocks               ? row / 128 * scale.shape[1] + col / 128
                       : scales.size() == 1 ? 0
                                            : row;
    const auto code = static_cast<uint8_t>(weight.data[static_cast<size_t>(i)]);
    w.values.push_back(kE4M3Values[code] * scales[static_cast<size_t>(at)]);
  }
  return w;
}

// Elements [begin, end) through E4M3 under `scale`, 0: one of their own.
void Round(std::vector<double>& x, size_t begin, size_t end, double scale) {
  if (scale == 0) {
    for (size_t i = begin; i < end; ++i) scale = std::max(scale, std::abs(x[i]));
    scale /= 448;
  }
  if (scale > 0) RoundE4M3(std::span(x).subspan(begin, end - begin), scale);
}

void RoundInputs(QuantTarget target, std::vector<double>& x) {
  if (target == QuantTarget::kFp8) {
    for (size_t i = 0; i < x.size(); i += 128) Round(x, i, std::min(i + 128, x.size()), 0);
  } else {
    const bool given = target == QuantTarget::kFp8ModelOpt;
    Round(x, 0, x.size(), given ? double{kFp8ActivationAmax} / 448 : 0);
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

TinyLlama Dequantised(const TinyLlamaShape& shape, const std::string& dir) {
  TinyLlama twin(shape, 1);
  const std::unique_ptr<CheckpointSource> source = *CheckpointSource::Open(dir);
  for (const auto& [name, tensor] : source->checkpoint().tensors()) {
    if (tensor->dtype == FileDType::kF8E4M3) {
      twin.Set(name, Widened(*source, *tensor));
    } else if (!absl::StrContains(name, "_scale")) {
      twin.Set(name, {.shape = tensor->shape, .values = Floats(*source, *tensor)});
    }
  }
  return twin;
}

Fp8Llama MakeFp8Llama(const TinyLlamaShape& shape, QuantTarget target, const std::string& name) {
  const TinyLlama model(shape, 11);
  const std::string plain = Folder(model, name + "_plain");
  const std::string dir = MakeFolder(name + "_" + Fp8FormatName(target));
  std::filesystem::remove_all(dir);  // what an earlier run left
  const absl::StatusOr<QuantizeReport> report = QuantizeCheckpoint(
      {.input = plain, .output = dir, .target = target, .activation_amax = kFp8ActivationAmax});
  EXPECT_TRUE(report.ok()) << report.status();
  Fp8Llama made = {plain, dir, Dequantised(shape, dir)};
  made.twin.round_inputs = [target](std::vector<double>& x) { RoundInputs(target, x); };
  return made;
}

double Rms(const std::vector<std::vector<double>>& rows) {
  double sum = 0, count = 0;
  for (const std::vector<double>& row : rows) {
    for (const double x : row) sum += x * x;
    count += static_cast<double>(row.size());
  }
  return std::sqrt(sum / count);
}

std::vector<std::vector<double>> Difference(const std::vector<std::vector<double>>& a,
                                            const std::vector<std::vector<float>>& b) {
  MR_CHECK_EQ(a.size(), b.size());
  std::vector<std::vector<double>> rows = a;
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t i = 0; i < a[t].size(); ++i) rows[t][i] -= double{b[t][i]};
  }
  return rows;
}

}  // namespace millrace
