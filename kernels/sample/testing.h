// What the tests of this folder share: one call's tensors, and a row's distribution in double.
#ifndef KERNELS_SAMPLE_TESTING_H_
#define KERNELS_SAMPLE_TESTING_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/sample/sample.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {

// The tensors of one call.
struct SampleCall {
  SampleCall(Device& device, int64_t rows, int64_t vocabulary)
      : logits(device, DType::kF32, {rows, vocabulary}, 3),
        ids(device, DType::kI32, {rows}),
        flags(device, DType::kI32, {rows}),
        logprob(device, DType::kF32, {rows}),
        top_ids(device, DType::kI32, {rows, kSampleTopLogprobs}, 2),
        top_logprobs(device, DType::kF32, {rows, kSampleTopLogprobs}, 1),
        rows(static_cast<size_t>(rows)) {}

  SampleArgs Args() const {
    return {.logits = logits.view(),
            .rows = rows,
            .ids = ids.view(),
            .flags = flags.view(),
            .logprob = logprob.view(),
            .top_ids = top_ids.view(),
            .top_logprobs = top_logprobs.view()};
  }

  void Run(const OpContext& ctx) {
    const absl::Status status = Sample(ctx, Args());
    ASSERT_TRUE(status.ok()) << status;
    for (const GuardedTensor* t : {&logits, &ids, &flags, &logprob, &top_ids, &top_logprobs}) {
      ASSERT_TRUE(t->GuardsIntact());
    }
  }

  // All that the call wrote.
  std::vector<std::vector<uint8_t>> Bytes() const {
    return {ids.GetBytes(), flags.GetBytes(), logprob.GetBytes(), top_ids.GetBytes(),
            top_logprobs.GetBytes()};
  }

  GuardedTensor logits, ids, flags, logprob, top_ids, top_logprobs;
  std::vector<SampleRow> rows;
};

// Logits after bias, bans and penalties, from the definition.
inline std::vector<double> ChangedLogits(std::vector<double> x, const SampleRow& r) {
  const auto at = [&x](int32_t id) -> double& { return x[static_cast<size_t>(id)]; };
  for (int32_t i = 0; i < r.num_biases; ++i) at(r.bias_ids[i]) += r.bias_values[i];
  for (int32_t i = 0; i < r.num_banned; ++i) at(r.banned_ids[i]) = -HUGE_VAL;
  for (int32_t i = 0; i < r.num_penalties; ++i) {
    double& l = at(r.penalty_ids[i]);
    l = l > 0 ? l / r.repetition_penalty : l * r.repetition_penalty;
    l -= r.frequency_penalty * r.penalty_counts[i];
    if (r.penalty_counts[i] > 0) l -= r.presence_penalty;
  }
  return x;
}

// The probability of each token, from the definition.
inline std::vector<double> Distribution(const std::vector<double>& logits, const SampleRow& r) {
  std::vector<double> p = ChangedLogits(logits, r);
  const double top = *std::max_element(p.begin(), p.end());
  for (double& x : p) x = std::exp((x - top) / r.temperature);
  for (double& x : p) {
    if (x < r.min_p) x = 0;
  }
  std::vector<double> sorted = p;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  if (r.top_k > 0 && r.top_k < static_cast<int32_t>(p.size())) {
    const double bound = sorted[static_cast<size_t>(r.top_k - 1)];
    for (double& x : p) x = x < bound ? 0 : x;
    std::replace_if(
        sorted.begin(), sorted.end(), [&](double x) { return x < bound; }, 0.0);
  }
  double total = 0, reached = 0, bound = 0;
  for (double x : p) total += x;
  for (double x : sorted) {
    bound = x;
    if ((reached += x) >= r.top_p * total) break;
  }
  double kept = 0;
  for (double& x : p) kept += x = r.top_p < 1 && x < bound ? 0 : x;
  for (double& x : p) x /= kept;
  return p;
}

}  // namespace millrace

#endif  // KERNELS_SAMPLE_TESTING_H_
