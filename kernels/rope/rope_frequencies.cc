#include "kernels/rope/rope_frequencies.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/rope/rope.h"

namespace millrace {
namespace {

absl::Status Validate(const RopeFrequencyParams& p) {
  const auto refuse = [](const char* name, double value, const char* want) {
    return absl::InvalidArgumentError(
        absl::StrCat("RopeFrequencies: ", name, " = ", value, ", want ", want));
  };
  if (p.dim <= 0 || p.dim % 2 != 0 || p.dim > kMaxRopeDim) {
    return refuse("dim", p.dim, "an even number from 2 to 512");
  }
  if (!(p.theta > 0) || !std::isfinite(p.theta)) return refuse("theta", p.theta, "above 0");
  if (p.type == RopeType::kDefault) return absl::OkStatus();
  if (!(p.factor > 0) || !std::isfinite(p.factor)) return refuse("factor", p.factor, "above 0");
  if (p.type == RopeType::kLinear) return absl::OkStatus();
  if (!(p.low_freq_factor > 0)) return refuse("low_freq_factor", p.low_freq_factor, "above 0");
  if (!(p.high_freq_factor > p.low_freq_factor)) {
    return refuse("high_freq_factor", p.high_freq_factor, "above low_freq_factor");
  }
  if (p.original_max_position <= 0) {
    return refuse("original_max_position", p.original_max_position, "above 0");
  }
  return absl::OkStatus();
}

// A number divided by a tensor is, in torch, the tensor's reciprocal times the number.
float Over(double number, float x) { return (1.0f / x) * static_cast<float>(number); }

float Llama3(float frequency, const RopeFrequencyParams& p) {
  const double context = p.original_max_position;
  const float low_wavelength = static_cast<float>(context / p.low_freq_factor);
  const float high_wavelength = static_cast<float>(context / p.high_freq_factor);
  const float factor = static_cast<float>(p.factor);
  const float wavelength = Over(2 * M_PI, frequency);
  if (wavelength > low_wavelength) return frequency / factor;
  if (wavelength < high_wavelength) return frequency;
  const float smooth = (Over(context, wavelength) - static_cast<float>(p.low_freq_factor)) /
                       static_cast<float>(p.high_freq_factor - p.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

absl::StatusOr<std::vector<float>> RopeFrequencies(const RopeFrequencyParams& params) {
  RETURN_IF_ERROR(Validate(params));
  std::vector<float> out;
  out.reserve(static_cast<size_t>(params.dim / 2));
  for (int32_t i = 0; i < params.dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(params.dim);
    const float frequency = 1.0f / std::pow(static_cast<float>(params.theta), exponent);
    switch (params.type) {
      case RopeType::kDefault:
        out.push_back(frequency);
        break;
      case RopeType::kLinear:
        out.push_back(frequency / static_cast<float>(params.factor));
        break;
      case RopeType::kLlama3:
        out.push_back(Llama3(frequency, params));
        break;
    }
  }
  return out;
}

}  // namespace millrace
