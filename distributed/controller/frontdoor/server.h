// The controller's public side: one engine behind gRPC, with health, reflection and metrics.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_SERVER_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/controller/frontdoor/front_door.h"
#include "distributed/controller/frontdoor/served_model.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/step_executor.h"

namespace millrace {

// PEM texts; empty: no TLS.
struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string client_ca;  // given: clients must show a certificate of it
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int32_t port = 50051;         // 0: a free one
  bool allow_insecure = false;  // needed for a host beyond loopback without TLS
  TlsFiles tls;
  bool reflection = true;
  int32_t max_message_bytes = 16 << 20;  // of a request
  bool metrics = false;
  int32_t metrics_port = 0;  // 0: a free one; on `host`
  std::string metrics_prefix = "millrace:";
  int32_t stream_threads = 1;
  int32_t admission_threads = 1;
  FrontDoorLimits limits;
  uint64_t seed = 0;          // of requests without one
  SchedulerConfig scheduler;  // num_pages is taken from SetExecutor
  absl::Duration self_test_timeout = absl::Seconds(60);
  // On the engine thread; must not block.
  std::function<void(const absl::Status&)> on_executor_lost;
};

// Every method: any thread.
class Server final {
 public:
  // Listens at once; requests are answered UNAVAILABLE/LOADING until SetExecutor. INVALID_ARGUMENT
  // for options that do not go together, UNAVAILABLE when a port is taken.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, ServedModel model);
  // Ends what still runs.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Puts an executor to work, generates a token with it, and is ready. Also after a loss.
  // `max_model_len` is served from now on; 0: the model's as it was given to Start().
  absl::Status SetExecutor(std::unique_ptr<StepExecutor> executor, int32_t num_pages,
                           int32_t max_model_len = 0);

  // Health turns NOT_SERVING, new requests get UNAVAILABLE/DRAINING, running ones finish. True when
  // all did within `timeout`; the rest ends with UNAVAILABLE.
  bool Drain(absl::Duration timeout);

  int32_t port() const;
  int32_t metrics_port() const;  // 0: no metrics
  EngineStats stats() const;
  int64_t running_calls() const;
  // As it is served now.
  const ServedModel& model() const;
  std::string metrics_text() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_SERVER_H_
