#include "tools/bench/load_generator.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

namespace wire = vllm::grpc::engine;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

absl::Status ToAbsl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// Counts requests in flight.
class Gate {
 public:
  void Enter(int32_t limit) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return in_flight_ < limit; });
    ++in_flight_;
  }
  void Leave() {
    std::lock_guard lock(mu_);
    --in_flight_;
    changed_.notify_all();
  }
  void WaitForNone() {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return in_flight_ == 0; });
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  int32_t in_flight_ = 0;
};

// One streamed request.
class Call final : public grpc::ClientReadReactor<wire::GenerateResponse> {
 public:
  Call(wire::VllmEngine::Stub& stub, wire::GenerateRequest request, Gate& gate,
       RequestRecord& record)
      : request_(std::move(request)), gate_(gate), record_(record), begin_(Clock::now()) {
    stub.async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_chunk() && response_.chunk().token_ids_size() > 0) {
      const double now = SecondsSince(begin_);
      if (record_.output_tokens == 0) {
        record_.ttft = now;
      } else {
        record_.inter_token.push_back(now - last_);
      }
      last_ = now;
      record_.output_tokens += response_.chunk().token_ids_size();
    } else if (response_.has_complete()) {
      record_.prompt_tokens = response_.complete().prompt_tokens();
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    record_.end_to_end = SecondsSince(begin_);
    record_.status = ToAbsl(status);
    gate_.Leave();
  }

 private:
  grpc::ClientContext context_;
  wire::GenerateRequest request_;
  wire::GenerateResponse response_;
  Gate& gate_;
  RequestRecord& record_;
  const Clock::time_point begin_;
  double last_ = 0;
};

wire::GenerateRequest MakeRequest(const LoadOptions& options, int32_t vocab_size, int32_t index,
                                  std::mt19937_64& rng) {
  wire::GenerateRequest request;
  request.set_request_id(absl::StrCat("bench-", options.seed, "-", options.concurrency, "-",
                                      static_cast<int64_t>(rng() >> 20), "-", index));
  request.set_stream(true);
  std::uniform_int_distribution<int32_t> id(0, vocab_size - 1);
  for (int32_t i = 0; i < options.input_tokens; ++i) {
    request.mutable_tokenized()->add_input_ids(static_cast<uint32_t>(id(rng)));
  }
  auto& sampling = *request.mutable_sampling_params();
  sampling.set_temperature(0);
  sampling.set_ignore_eos(true);
  sampling.set_max_tokens(static_cast<uint32_t>(options.output_tokens));
  return request;
}

}  // namespace

absl::StatusOr<int32_t> VocabularySize(wire::VllmEngine::Stub& stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  wire::GetModelInfoResponse info;
  const grpc::Status status = stub.GetModelInfo(&context, {}, &info);
  if (!status.ok()) return ToAbsl(status);
  return static_cast<int32_t>(info.vocab_size());
}

LoadResult RunLoad(wire::VllmEngine::Stub& stub, const LoadOptions& options, int32_t vocab_size) {
  std::mt19937_64 rng(options.seed);
  std::exponential_distribution<double> gap(options.request_rate > 0 ? options.request_rate : 1);
  LoadResult result;
  result.records.resize(static_cast<size_t>(options.num_requests));
  std::vector<std::unique_ptr<Call>> calls;
  Gate gate;
  const Clock::time_point begin = Clock::now();
  auto next = begin;
  for (int32_t i = 0; i < options.num_requests; ++i) {
    wire::GenerateRequest request = MakeRequest(options, vocab_size, i, rng);
    if (options.request_rate > 0) {
      std::this_thread::sleep_until(next);
      next += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(gap(rng)));
    }
    gate.Enter(options.concurrency);
    RequestRecord& record = result.records[static_cast<size_t>(i)];
    record.start = SecondsSince(begin);
    calls.push_back(std::make_unique<Call>(stub, std::move(request), gate, record));
  }
  gate.WaitForNone();
  result.seconds = SecondsSince(begin);
  return result;
}

}  // namespace millrace
