#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/moe_route/moe_route_impl.h"
#include "kernels/moe_route/moe_route_score.h"

namespace millrace {
namespace {

// Exponentials that are worth another thread: a few microseconds of work.
constexpr int64_t kScoresPerTask = 1024;

float Score(float logit) { return std::sqrt(RouteSoftplus(logit)); }

template <typename T>
T* Row(const TensorView& t, int64_t row) {
  return t.as<T>() + row * t.stride(0);
}

// From scores to weights, in place. Entries of expert -1 are zero already and count for nothing.
void Normalise(float* weights, int64_t size, float scaling) {
  float sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += weights[i];
  if (sum == 0) return;
  for (int64_t i = 0; i < size; ++i) weights[i] = weights[i] / sum * scaling;
}

// The experts in falling order of `keys`, equal ones in rising order of their ids.
void ChooseLargest(const std::vector<float>& keys, int32_t* experts, int64_t count) {
  // Everything after the one chosen last, in that order, is still to be had.
  float last_key = std::numeric_limits<float>::infinity();
  int32_t last = -1;
  for (int64_t i = 0; i < count; ++i) {
    int32_t best = -1;
    for (int32_t e = 0; e < static_cast<int32_t>(keys.size()); ++e) {
      const float key = keys[static_cast<size_t>(e)];
      const bool is_left = key < last_key || (key == last_key && e > last);
      if (is_left && (best < 0 || key > keys[static_cast<size_t>(best)])) best = e;
    }
    experts[i] = best;
    last = best;
    last_key = keys[static_cast<size_t>(best)];
  }
}

void RouteByScore(const MoeRouteByScoreArgs& args, int64_t begin, int64_t end) {
  const int64_t count = args.experts.dim(1);
  const auto num_experts = static_cast<size_t>(args.logits.dim(1));
  std::vector<float> scores(num_experts), keys(num_experts);
  for (int64_t t = begin; t < end; ++t) {
    const float* logits = Row<float>(args.logits, t);
    for (size_t e = 0; e < num_experts; ++e) {
      scores[e] = Score(logits[e]);
      const float key = scores[e] + args.bias.as<float>()[e];
      keys[e] = std::isnan(key) ? -std::numeric_limits<float>::infinity() : key;
    }
    int32_t* experts = Row<int32_t>(args.experts, t);
    float* weights = Row<float>(args.weights, t);
    ChooseLargest(keys, experts, count);
    for (int64_t i = 0; i < count; ++i) weights[i] = scores[static_cast<size_t>(experts[i])];
    Normalise(weights, count, args.scaling);
  }
}

// Of token t, negative for none.
int64_t IdOf(const MoeRouteByHashArgs& args, int64_t t) {
  const int64_t id = args.ids.as<int32_t>()[t];
  if (id >= 0) return id;
  const int64_t slot = -1 - id;
  if (!args.last_tokens || slot >= args.last_tokens->dim(0)) return -1;
  return args.last_tokens->as<int32_t>()[slot];
}

void RouteByHash(const MoeRouteByHashArgs& args, int64_t begin, int64_t end) {
  const int64_t count = args.experts.dim(1);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t id = IdOf(args, t);
    const bool is_known = id >= 0 && id < args.table.dim(0);
    const float* logits = Row<float>(args.logits, t);
    int32_t* experts = Row<int32_t>(args.experts, t);
    float* weights = Row<float>(args.weights, t);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t expert = is_known ? Row<int32_t>(args.table, id)[i] : -1;
      const bool is_expert = expert >= 0 && expert < args.logits.dim(1);
      experts[i] = is_expert ? expert : -1;
      weights[i] = is_expert ? Score(logits[expert]) : 0.0f;
    }
    Normalise(weights, count, args.scaling);
  }
}

}  // namespace

absl::Status MoeRouteByScoreCpu(const OpContext& ctx, const MoeRouteByScoreArgs& args) {
  ctx.device.thread_pool()->ParallelFor(
      args.logits.dim(0), std::max<int64_t>(1, kScoresPerTask / args.logits.dim(1)),
      [&](int64_t begin, int64_t end, int) { RouteByScore(args, begin, end); });
  return absl::OkStatus();
}

absl::Status MoeRouteByHashCpu(const OpContext& ctx, const MoeRouteByHashArgs& args) {
  ctx.device.thread_pool()->ParallelFor(
      args.logits.dim(0), std::max<int64_t>(1, kScoresPerTask / args.experts.dim(1)),
      [&](int64_t begin, int64_t end, int) { RouteByHash(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace millrace
