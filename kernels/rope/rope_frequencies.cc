#include "kernels/rope/rope_frequencies.h"

#include <algorithm>
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
  if (p.original_max_position <= 0) {
    return refuse("original_max_position", p.original_max_position, "above 0");
  }
  if (p.type == RopeType::kYarn) {
    if (!(p.theta > 1)) return refuse("theta", p.theta, "above 1");
    if (!(p.beta_slow > 0)) return refuse("beta_slow", p.beta_slow, "above 0");
    if (!(p.beta_fast > p.beta_slow)) return refuse("beta_fast", p.beta_fast, "above beta_slow");
    return absl::OkStatus();
  }
  if (!(p.low_freq_factor > 0)) return refuse("low_freq_factor", p.low_freq_factor, "above 0");
  if (!(p.high_freq_factor > p.low_freq_factor)) {
    return refuse("high_freq_factor", p.high_freq_factor, "above low_freq_factor");
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

// The pair, as a fraction of an index, that turns `turns` times over the original context.
double YarnPair(double turns, const RopeFrequencyParams& p) {
  return p.dim * std::log(p.original_max_position / (turns * 2 * M_PI)) / (2 * std::log(p.theta));
}

// Of pair `pair`, whose plain frequency is 1 / `power`.
float Yarn(int32_t pair, float power, const RopeFrequencyParams& p) {
  const double low = std::max(std::floor(YarnPair(p.beta_fast, p)), 0.0);
  double high = std::min<double>(std::ceil(YarnPair(p.beta_slow, p)), p.dim - 1);
  if (high == low) high += 0.001;  // a step, not a division by zero
  const float ramp =
      (static_cast<float>(pair) - static_cast<float>(low)) / static_cast<float>(high - low);
  const float kept = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
  const float divided = 1.0f / (static_cast<float>(p.factor) * power);
  return divided * (1.0f - kept) + 1.0f / power * kept;
}

}  // namespace

absl::StatusOr<std::vector<float>> RopeFrequencies(const RopeFrequencyParams& params) {
  RETURN_IF_ERROR(Validate(params));
  std::vector<float> out;
  out.reserve(static_cast<size_t>(params.dim / 2));
  for (int32_t i = 0; i < params.dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(params.dim);
    const float power = std::pow(static_cast<float>(params.theta), exponent);
    const float frequency = 1.0f / power;
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
      case RopeType::kYarn:
        out.push_back(Yarn(i / 2, power, params));
        break;
    }
  }
  return out;
}

}  // namespace millrace
