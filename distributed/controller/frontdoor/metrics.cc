#include "distributed/controller/frontdoor/metrics.h"

#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/wire/response_codec.h"
#include "prometheus/counter.h"
#include "prometheus/exposer.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace millrace {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kFirstTokenSeconds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                    0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                    20,    40,    80,   160,  640,  2560};
const Buckets kTokenSeconds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                               0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const Buckets kRequestSeconds = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                 30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const Buckets kStepSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5};
const Buckets kTokens = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                         1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
const Buckets kStepTokens = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const Buckets kChoices = {1, 2, 5, 10, 20};

std::string CodeName(absl::StatusCode code) {
  return code == absl::StatusCode::kOk ? "OK" : absl::StatusCodeToString(code);
}

}  // namespace

// Reads the engine when the page is asked for: nothing to keep up to date, and nothing that can
// disagree with GetLoads.
class Metrics::EngineFamilies final : public prometheus::Collectable {
 public:
  explicit EngineFamilies(const MetricsOptions& options) : options_(options) {}

  void SetSource(std::function<EngineStats()> source) {
    std::lock_guard lock(mu_);
    source_ = std::move(source);
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::lock_guard lock(mu_);
    std::vector<prometheus::MetricFamily> families;
    if (!source_) return families;
    const EngineStats stats = source_();
    AddGauges(stats, families);
    AddCounters(stats, families);
    return families;
  }

 private:
  using Families = std::vector<prometheus::MetricFamily>;

  prometheus::ClientMetric& Add(Families& families, const std::string& name,
                                const std::string& help, prometheus::MetricType type) const {
    families.push_back({.name = options_.prefix + name, .help = help, .type = type, .metric = {}});
    prometheus::ClientMetric metric;
    metric.label.push_back({.name = "model_name", .value = options_.model_name});
    families.back().metric.push_back(std::move(metric));
    return families.back().metric.back();
  }

  void Gauge(Families& families, const std::string& name, const std::string& help,
             double value) const {
    Add(families, name, help, prometheus::MetricType::Gauge).gauge.value = value;
  }

  void Counter(Families& families, const std::string& name, const std::string& help,
               int64_t value) const {
    Add(families, name, help, prometheus::MetricType::Counter).counter.value =
        static_cast<double>(value);
  }

  void AddGauges(const EngineStats& stats, Families& families) const {
    const SchedulerStats& s = stats.scheduler;
    const double usage = s.pages_total > 0 ? static_cast<double>(s.pages_used) / s.pages_total : 0;
    Gauge(families, "num_requests_running", "Sequences in the running batch.", s.running);
    Gauge(families, "num_requests_waiting", "Sequences that wait for the batch.", s.waiting);
    Gauge(families, "kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", usage);
    Gauge(families, "kv_blocks_free", "KV cache blocks that hold nothing.", s.pages_free);
    Gauge(families, "kv_blocks_used", "KV cache blocks of live sequences.", s.pages_used);
    Gauge(families, "kv_blocks_cached", "KV cache blocks kept for reuse.", s.pages_cached);
    prometheus::ClientMetric& info =
        Add(families, "cache_config_info", "Size of the KV cache.", prometheus::MetricType::Gauge);
    info.gauge.value = 1;
    info.label.push_back({.name = "block_size", .value = absl::StrCat(options_.block_size)});
    info.label.push_back({.name = "num_gpu_blocks", .value = absl::StrCat(s.pages_total)});
  }

  void AddCounters(const EngineStats& stats, Families& families) const {
    const SchedulerStats& s = stats.scheduler;
    Counter(families, "prompt_tokens_total", "Prompt tokens taken in.", s.prompt_tokens);
    Counter(families, "generation_tokens_total", "Tokens generated.", s.generated_tokens);
    Counter(families, "num_preemptions_total", "Sequences sent back to the queue.", s.preemptions);
    Counter(families, "prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
            s.prefix_queries);
    Counter(families, "prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
            s.prefix_hits);
    Counter(families, "nan_logits_total", "Sequences ended by NaN or Inf in their logits.",
            s.numeric_faults);
    Counter(families, "engine_steps_total", "Steps run.", stats.steps);
  }

  const MetricsOptions options_;
  mutable std::mutex mu_;
  std::function<EngineStats()> source_;
};

struct Metrics::Instruments {
  explicit Instruments(const MetricsOptions& options)
      : labels({{"model_name", options.model_name}}),
        registry(std::make_shared<prometheus::Registry>()),
        prefix(options.prefix) {}

  prometheus::Histogram& Histogram(const std::string& name, const std::string& help,
                                   const Buckets& buckets) {
    return prometheus::BuildHistogram()
        .Name(prefix + name)
        .Help(help)
        .Labels(labels)
        .Register(*registry)
        .Add({}, buckets);
  }

  prometheus::Family<prometheus::Counter>& Counters(const std::string& name,
                                                    const std::string& help) {
    return prometheus::BuildCounter()
        .Name(prefix + name)
        .Help(help)
        .Labels(labels)
        .Register(*registry);
  }

  const prometheus::Labels labels;
  const std::shared_ptr<prometheus::Registry> registry;
  const std::string prefix;

  prometheus::Histogram& first_token =
      Histogram("time_to_first_token_seconds", "From a request's arrival to its first token.",
                kFirstTokenSeconds);
  prometheus::Histogram& token_interval =
      Histogram("inter_token_latency_seconds", "Between two tokens of a choice.", kTokenSeconds);
  prometheus::Histogram& token_mean =
      Histogram("request_time_per_output_token_seconds",
                "Mean time per token after the first, per choice.", kTokenSeconds);
  prometheus::Histogram& whole =
      Histogram("e2e_request_latency_seconds", "From arrival to the last token.", kRequestSeconds);
  prometheus::Histogram& decode =
      Histogram("request_decode_time_seconds", "From first to last token.", kRequestSeconds);
  prometheus::Histogram& prompt_tokens =
      Histogram("request_prompt_tokens", "Prompt tokens per choice.", kTokens);
  prometheus::Histogram& generation_tokens =
      Histogram("request_generation_tokens", "Generated tokens per choice.", kTokens);
  prometheus::Histogram& params_n = Histogram("request_params_n", "n of requests.", kChoices);
  prometheus::Histogram& params_max_tokens =
      Histogram("request_params_max_tokens", "max_tokens of requests.", kTokens);
  prometheus::Histogram& step_tokens =
      Histogram("iteration_tokens_total", "Tokens computed per step.", kStepTokens);
  prometheus::Histogram& step_seconds =
      Histogram("step_time_seconds", "Time per step.", kStepSeconds);
  prometheus::Family<prometheus::Counter>& success =
      Counters("request_success_total", "Choices that ended with a message, by finish reason.");
  prometheus::Family<prometheus::Counter>& status =
      Counters("request_status_total", "Generate calls that ended, by status code.");
  prometheus::Family<prometheus::Counter>& worker_lost =
      Counters("worker_lost_total", "Losses of a worker, by rank.");
  prometheus::Counter& stalled =
      Counters("stream_stalled_aborts_total", "Calls ended because the client did not read.")
          .Add({});

  std::unique_ptr<prometheus::Exposer> exposer;
};

Metrics::Metrics(const MetricsOptions& options)
    : engine_families_(std::make_shared<EngineFamilies>(options)),
      instruments_(std::make_unique<Instruments>(options)) {
  // Series that exist from the start can be told from ones that never counted.
  for (FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort}) {
    instruments_->success.Add({{"finished_reason", std::string(FinishReasonName(reason))}});
  }
  instruments_->status.Add({{"code", CodeName(absl::StatusCode::kOk)}});
}

Metrics::~Metrics() = default;

void Metrics::OnRequest(int32_t n, const SamplingParams& sampling) {
  instruments_->params_n.Observe(n);
  instruments_->params_max_tokens.Observe(sampling.max_tokens);
}

void Metrics::OnCallEnd(absl::StatusCode code) {
  instruments_->status.Add({{"code", CodeName(code)}}).Increment();
}

void Metrics::OnSlowReaderAbort() { instruments_->stalled.Increment(); }

void Metrics::OnChoiceEnd(const ResponseComplete& complete) {
  Instruments& m = *instruments_;
  const UsageFacts& usage = complete.usage;
  m.success.Add({{"finished_reason", std::string(FinishReasonName(complete.finish_reason))}})
      .Increment();
  m.prompt_tokens.Observe(usage.prompt_tokens);
  m.generation_tokens.Observe(usage.completion_tokens);
  if (usage.completion_tokens == 0) return;
  m.first_token.Observe(usage.ttft_seconds);
  m.whole.Observe(usage.e2e_seconds);
  m.decode.Observe(usage.e2e_seconds - usage.ttft_seconds);
  if (usage.completion_tokens > 1) m.token_mean.Observe(usage.tpot_seconds);
}

void Metrics::OnTokenInterval(double seconds) { instruments_->token_interval.Observe(seconds); }

void Metrics::OnStep(const StepObservation& step) {
  instruments_->step_tokens.Observe(step.tokens);
  instruments_->step_seconds.Observe(absl::ToDoubleSeconds(step.since_last));
}

void Metrics::OnWorkerLost(int32_t rank) {
  instruments_->worker_lost.Add({{"rank", rank < 0 ? "unknown" : absl::StrCat(rank)}}).Increment();
}

void Metrics::SetStatsSource(std::function<EngineStats()> source) {
  engine_families_->SetSource(std::move(source));
}

absl::StatusOr<int32_t> Metrics::Serve(const std::string& host, int32_t port) {
  const std::string address = absl::StrCat(host, ":", port);
  try {
    instruments_->exposer = std::make_unique<prometheus::Exposer>(address, 1);
    instruments_->exposer->RegisterCollectable(instruments_->registry);
    instruments_->exposer->RegisterCollectable(engine_families_);
    return instruments_->exposer->GetListeningPorts().at(0);
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", address, ": ", e.what(),
                                               "; choose another --metrics-port"));
  }
}

std::string Metrics::Text() const {
  std::vector<prometheus::MetricFamily> families = instruments_->registry->Collect();
  for (prometheus::MetricFamily& family : engine_families_->Collect()) {
    families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace millrace
