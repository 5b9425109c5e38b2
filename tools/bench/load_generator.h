// Sends Generate requests to a server and times what comes back.
#ifndef TOOLS_BENCH_LOAD_GENERATOR_H_
#define TOOLS_BENCH_LOAD_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/vllm_engine.grpc.pb.h"

namespace millrace {

// Times in seconds, all on this process's monotonic clock.
struct RequestRecord {
  double start = 0;                 // since the run began
  double ttft = 0;                  // to the first chunk with a token
  double end_to_end = 0;            // to the end of the stream
  std::vector<double> inter_token;  // between chunks that carry tokens
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  absl::Status status;
};

struct LoadOptions {
  int32_t num_requests = 64;
  int32_t concurrency = 8;     // requests in flight at most
  double request_rate = 0;     // Poisson arrivals a second; 0 = as soon as one in flight ends
  int32_t input_tokens = 128;  // random ids, so that nothing is served from the prefix cache
  int32_t output_tokens = 64;  // exactly: the end-of-sequence id is ignored
  uint64_t seed = 0;
};

struct LoadResult {
  double seconds = 0;  // first request to last answer
  std::vector<RequestRecord> records;
};

// Asks the server for its vocabulary. UNAVAILABLE and the like when it does not answer.
absl::StatusOr<int32_t> VocabularySize(vllm::grpc::engine::VllmEngine::Stub& stub);

// Runs the load and waits for every answer. Failed requests are in the records.
LoadResult RunLoad(vllm::grpc::engine::VllmEngine::Stub& stub, const LoadOptions& options,
                   int32_t vocab_size);

}  // namespace millrace

#endif  // TOOLS_BENCH_LOAD_GENERATOR_H_
