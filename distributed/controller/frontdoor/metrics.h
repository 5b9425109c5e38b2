// Prometheus metrics under vLLM's names, and their HTTP page.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_METRICS_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_METRICS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/wire/response.h"
#include "engine/request/request.h"
#include "engine/runtime/engine.h"

namespace millrace {

struct MetricsOptions {
  std::string prefix = "millrace:";
  std::string model_name;
  int32_t block_size = 16;
};

// Every method: any thread. Labels never hold request ids or text.
class Metrics final {
 public:
  explicit Metrics(const MetricsOptions& options);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // A request was taken in.
  void OnRequest(int32_t n, const SamplingParams& sampling);
  // A Generate call ended; `code` is OK for one that ended well.
  void OnCallEnd(absl::StatusCode code);
  void OnSlowReaderAbort();
  // A choice ended with a message.
  void OnChoiceEnd(const ResponseComplete& complete);
  // Time between two tokens of a choice.
  void OnTokenInterval(double seconds);
  void OnStep(const StepObservation& step);
  void OnWorkerLost(int32_t rank);

  // Gauges and counters that are read from the engine whenever the page is asked for. Until then,
  // and after being given null, they are absent.
  void SetStatsSource(std::function<EngineStats()> source);

  // Serves the page at http://host:port/metrics; port 0 takes a free one. Returns the port.
  // UNAVAILABLE when the port is taken.
  absl::StatusOr<int32_t> Serve(const std::string& host, int32_t port);

  // The page's text.
  std::string Text() const;

 private:
  class EngineFamilies;
  struct Instruments;

  std::shared_ptr<EngineFamilies> engine_families_;
  std::unique_ptr<Instruments> instruments_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_METRICS_H_
