#include "distributed/controller/frontdoor/throughput.h"

#include "absl/strings/str_format.h"

namespace millrace {
namespace {

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

Throughput ThroughputMeter::Update(const EngineStats& stats, MonotonicTime now) {
  constexpr double kShortestInterval = 0.1;
  const SchedulerStats& s = stats.scheduler;
  const double seconds = started_ ? SecondsBetween(last_time_, now) : 0;
  if (started_ && seconds >= kShortestInterval) {
    const auto prompt = static_cast<double>(s.prompt_tokens - last_.prompt_tokens);
    const auto generated = static_cast<double>(s.generated_tokens - last_.generated_tokens);
    throughput_.prompt_tokens_per_second = prompt / seconds;
    throughput_.generated_tokens_per_second = generated / seconds;
    throughput_.prefix_hit_rate =
        Share(static_cast<double>(s.prefix_hits - last_.prefix_hits),
              static_cast<double>(s.prefix_queries - last_.prefix_queries));
    throughput_.busy = prompt > 0 || generated > 0 || s.running > 0 || s.waiting > 0;
  }
  if (!started_ || seconds >= kShortestInterval) {
    last_ = s;
    last_time_ = now;
    started_ = true;
  }
  return throughput_;
}

std::string ThroughputLine(const Throughput& throughput, const EngineStats& stats) {
  const SchedulerStats& s = stats.scheduler;
  return absl::StrFormat(
      "Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, Running: %d "
      "reqs, Waiting: %d reqs, KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%",
      throughput.prompt_tokens_per_second, throughput.generated_tokens_per_second, s.running,
      s.waiting, 100 * Share(s.pages_used, s.pages_total), 100 * throughput.prefix_hit_rate);
}

}  // namespace millrace
