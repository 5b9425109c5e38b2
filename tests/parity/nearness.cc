#include "tests/parity/nearness.h"

#include <cmath>
#include <cstddef>
#include <iostream>

#include "gtest/gtest.h"
#include "kernels/core/dtype.h"
#include "tests/parity/engine_runs.h"

namespace millrace {
namespace {

using Rows = std::vector<std::vector<double>>;

class Sum final {
 public:
  void Add(double x) {
    squares_ += x * x;
    ++count_;
  }
  double Rms() const { return std::sqrt(squares_ / count_); }

 private:
  double squares_ = 0, count_ = 0;
};

}  // namespace

Nearness MeasureNearness(const TinyLlama& model, const LogitsOfPrompt& measured,
                         const std::vector<int32_t>& lengths) {
  TinyLlama in_bf16 = model;
  in_bf16.round_kept = [](std::vector<double>& row) {
    for (double& x : row) x = double{ToFloat(ToBFloat16(static_cast<float>(x)))};
  };
  Sum error, alike, noise, spread;
  for (const int32_t length : lengths) {
    const std::vector<int32_t> prompt = Prompt(length, length, model.shape().vocab);
    const Rows want = model.Logits(prompt), noisy = in_bf16.Logits(prompt);
    const std::vector<std::vector<float>> got = measured(prompt);
    EXPECT_EQ(got.size(), want.size());
    if (got.size() != want.size()) return {};
    for (size_t t = 0; t < want.size(); ++t) {
      for (size_t i = 0; i < want[t].size(); ++i) {
        error.Add(double{got[t][i]} - want[t][i]);
        alike.Add(double{got[t][i]} - noisy[t][i]);
        noise.Add(noisy[t][i] - want[t][i]);
        spread.Add(want[t][i]);
      }
    }
  }
  return {error.Rms(), alike.Rms(), noise.Rms(), spread.Rms()};
}

void ExpectNear(const TinyLlama& model, Engine& engine, const std::vector<int32_t>& lengths) {
  const Nearness nearness = MeasureNearness(
      model, [&](const std::vector<int32_t>& prompt) { return PromptLogits(engine, prompt); },
      lengths);
  std::cout << "hidden size " << model.shape().hidden << ": " << nearness << "\n";
  EXPECT_LT(nearness.error, kNoises * nearness.noise);
}

std::ostream& operator<<(std::ostream& out, const Nearness& nearness) {
  return out << "bf16 makes " << nearness.noise / nearness.spread
             << " of the logits; of that the error is " << nearness.error / nearness.noise
             << ", from formulas in bf16 " << nearness.alike / nearness.noise;
}

}  // namespace millrace
