// What the tests of this folder share: one call's tensors, and a row's distribution in double.
#ifndef KERNELS_SAMPLE_TESTING_H_
#define KERNELS_SAMPLE_TESTING_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/sample/sample.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {

// Rows where the device reads them: on the CPU the rows themselves, else copies of rows and lists.
class DeviceRows final {
 public:
  explicit DeviceRows(Device& device) : device_(device) {}

  // The rows until the next call; `rows` must live as long.
  const SampleRow* Put(const std::vector<SampleRow>& rows) {
    if (device_.type() == DeviceType::kCpu || rows.empty()) return rows.data();
    buffers_.clear();
    copied_.clear();
    std::vector<SampleRow> moved = rows;
    for (SampleRow& row : moved) {
      row.penalty_ids = List(row.penalty_ids, row.num_penalties);
      row.penalty_counts = List(row.penalty_counts, row.num_penalties);
      row.bias_ids = List(row.bias_ids, row.num_biases);
      row.bias_values = List(row.bias_values, row.num_biases);
      row.banned_ids = List(row.banned_ids, row.num_banned);
    }
    return Upload(moved.data(), static_cast<int64_t>(moved.size()));
  }

 private:
  // Rows often share a list: it is copied once.
  template <typename T>
  const T* List(const T* data, int32_t n) {
    if (n <= 0 || data == nullptr) return nullptr;
    const auto [at, added] = copied_.try_emplace(std::pair<const void*, int32_t>{data, n});
    if (added) at->second = Upload(data, n);
    return static_cast<const T*>(at->second);
  }

  template <typename T>
  const T* Upload(const T* data, int64_t n) {
    const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
    auto buffer = device_.Allocate(bytes);
    MR_CHECK(buffer.ok());
    MR_CHECK(device_.Copy(buffer->data(), data, bytes, CopyKind::kHostToDevice, Stream{}).ok());
    MR_CHECK(device_.Synchronize(Stream{}).ok());
    buffers_.push_back(std::move(buffer).value());
    return static_cast<const T*>(buffers_.back().data());
  }

  Device& device_;
  std::vector<Buffer> buffers_;
  std::map<std::pair<const void*, int32_t>, const void*> copied_;
};

// The tensors of one call.
struct SampleCall {
  static constexpr int64_t kSlots = 40;

  SampleCall(Device& device, int64_t rows, int64_t vocabulary)
      : logits(device, DType::kF32, {rows, vocabulary}, 3),
        ids(device, DType::kI32, {rows}),
        flags(device, DType::kI32, {rows}),
        logprob(device, DType::kF32, {rows}),
        top_ids(device, DType::kI32, {rows, kSampleTopLogprobs}, 2),
        top_logprobs(device, DType::kF32, {rows, kSampleTopLogprobs}, 1),
        last_tokens(device, DType::kI32, {kSlots}),
        rows(static_cast<size_t>(rows)),
        device_rows(device) {
    last_tokens.SetAll(-7);
  }

  // Copies the rows to the device.
  SampleArgs Args() {
    return {.logits = logits.view(),
            .rows = device_rows.Put(rows),
            .ids = ids.view(),
            .flags = flags.view(),
            .logprob = logprob.view(),
            .top_ids = top_ids.view(),
            .top_logprobs = top_logprobs.view(),
            .last_tokens = last_tokens.view()};
  }

  void Run(const OpContext& ctx) {
    for (const SampleRow& row : rows) {
      const absl::Status good = CheckSampleRow(row, logits.view().dim(1));
      ASSERT_TRUE(good.ok()) << good;
    }
    const absl::Status status = Sample(ctx, Args());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(ctx.device.Synchronize(ctx.stream).ok());
    for (const GuardedTensor* t :
         {&logits, &ids, &flags, &logprob, &top_ids, &top_logprobs, &last_tokens}) {
      ASSERT_TRUE(t->GuardsIntact());
    }
  }

  // All that the call wrote.
  std::vector<std::vector<uint8_t>> Bytes() const {
    return {ids.GetBytes(),     flags.GetBytes(),        logprob.GetBytes(),
            top_ids.GetBytes(), top_logprobs.GetBytes(), last_tokens.GetBytes()};
  }

  GuardedTensor logits, ids, flags, logprob, top_ids, top_logprobs, last_tokens;
  std::vector<SampleRow> rows;
  DeviceRows device_rows;
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
