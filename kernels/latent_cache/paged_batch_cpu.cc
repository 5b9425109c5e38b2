#include "kernels/latent_cache/paged_batch_cpu.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

absl::Status Refuse(std::string_view op, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(op), ": ", what));
}

absl::Status CheckSequence(std::string_view op, const PagedBatch& batch, int64_t b,
                           const PagedLimits& limits) {
  const int64_t tokens = batch.q_start.as<int32_t>()[b + 1] - batch.q_start.as<int32_t>()[b];
  if (tokens == 0) return absl::OkStatus();
  const int64_t length = batch.kv_len.as<int32_t>()[b];
  const int64_t room = batch.page_table.dim(1) * limits.page_tokens;
  if (length < tokens || length > room) {
    return Refuse(op, absl::StrCat("kv_len[", b, "] = ", length, ", want ", tokens, " to ", room));
  }
  const int32_t* pages = batch.page_table.as<int32_t>() + b * batch.page_table.stride(0);
  for (int64_t i = 0; i * limits.page_tokens < length; ++i) {
    if (pages[i] >= 0 && pages[i] < limits.pages) continue;
    return Refuse(op, absl::StrCat("page_table[", b, ", ", i, "] = ", pages[i], ", want 0 to ",
                                   limits.pages - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPagedBatchValues(std::string_view op, const PagedBatch& batch,
                                   const PagedLimits& limits) {
  const int32_t* q_start = batch.q_start.as<int32_t>();
  if (q_start[0] != 0) return Refuse(op, absl::StrCat("q_start[0] = ", q_start[0], ", want 0"));
  for (int64_t b = 0; b < batch.kv_len.dim(0); ++b) {
    if (q_start[b + 1] < q_start[b] || q_start[b + 1] > limits.tokens) {
      return Refuse(op, absl::StrCat("q_start[", b + 1, "] = ", q_start[b + 1], ", want ",
                                     q_start[b], " to ", limits.tokens));
    }
    RETURN_IF_ERROR(CheckSequence(op, batch, b, limits));
  }
  return absl::OkStatus();
}

int64_t PagedBatchCpu::SequenceOf(int64_t t) const {
  return std::upper_bound(q_start_, q_start_ + sequences_ + 1, t) - q_start_ - 1;
}

}  // namespace millrace
