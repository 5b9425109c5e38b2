#include "distributed/controller/frontdoor/self_test.h"

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

class OneTokenSink final : public TokenSink {
 public:
  std::future<absl::Status> result() { return result_.get_future(); }
  void OnToken(const TokenEvent& event) override { ++tokens_; }
  void OnFinish(const FinishEvent& event) override {
    absl::Status status = event.status;
    if (status.ok() && tokens_ == 0) status = absl::InternalError("the engine gave no token");
    result_.set_value(std::move(status));
  }

 private:
  int tokens_ = 0;
  std::promise<absl::Status> result_;
};

}  // namespace

absl::Status GenerateOneToken(Engine& engine, absl::Duration timeout) {
  Request request;
  request.id = engine.NewId();
  request.prompt = {0};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 1;
  const SequenceId id = request.id;
  auto sink = std::make_shared<OneTokenSink>();
  std::future<absl::Status> result = sink->result();
  RETURN_IF_ERROR(engine.Submit(std::move(request), sink));
  if (result.wait_for(absl::ToChronoNanoseconds(timeout)) == std::future_status::ready) {
    return result.get();
  }
  engine.Cancel(id, FinishReason::kAbort);
  return absl::DeadlineExceededError(
      absl::StrCat("self-test: no token within ", absl::FormatDuration(timeout)));
}

}  // namespace millrace
