#include "distributed/controller/frontdoor/generate_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/controller/frontdoor/admission.h"
#include "distributed/wire/error_details.h"
#include "distributed/wire/request_codec.h"
#include "distributed/wire/response_codec.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;

// Once a call has its status, how long the client may take to fetch it.
constexpr std::chrono::milliseconds kMaxFarewell{5000};

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  return absl::FromChrono(context.deadline());
}

// Different seeds for requests that gave none, the same again after a restart.
uint64_t MixSeed(uint64_t seed, uint64_t number) {
  uint64_t z = seed + number * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

int64_t TextBytes(const ClientRequest& request) {
  if (const auto* text = std::get_if<TextPrompt>(&request.prompt)) {
    return static_cast<int64_t>(text->size());
  }
  int64_t bytes = 0;
  if (const auto* chat = std::get_if<ChatPrompt>(&request.prompt)) {
    for (const ChatMessage& m : *chat) {
      bytes += static_cast<int64_t>(m.content.size() + m.fields_json.size());
    }
  }
  return bytes;
}

}  // namespace

// Passes one choice's events to the call and keeps the call alive while the engine may speak.
class GenerateCall::Sink final : public TokenSink {
 public:
  Sink(std::shared_ptr<GenerateCall> call, int32_t choice)
      : call_(std::move(call)), choice_(choice) {}
  void OnToken(const TokenEvent& event) override {
    call_->Enqueue({.choice = choice_, .at = MonotonicNow(), .event = event});
  }
  void OnFinish(const FinishEvent& event) override {
    call_->Enqueue({.choice = choice_, .at = MonotonicNow(), .event = event});
  }

 private:
  const std::shared_ptr<GenerateCall> call_;
  const int32_t choice_;
};

GenerateCall* GenerateCall::Start(FrontDoor& door, grpc::CallbackServerContext* context,
                                  const pb::GenerateRequest& proto) {
  auto call = std::make_shared<GenerateCall>(door, context);
  call->self_ = call;
  call->Begin(proto);
  return call.get();
}

GenerateCall::GenerateCall(FrontDoor& door, grpc::CallbackServerContext* context)
    : door_(door), arrival_(MonotonicNow()), context_(context), last_progress_(arrival_) {}

void GenerateCall::Begin(const pb::GenerateRequest& proto) {
  door_.last_receive_unix = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  const absl::Status status = Check(proto);
  if (!status.ok()) return EndWith(status);
  AdmitNowOrLater();
}

absl::Status GenerateCall::Check(const pb::GenerateRequest& proto) {
  RETURN_IF_ERROR(door_.readiness->status());
  ASSIGN_OR_RETURN(request_, RequestFromProto(proto, door_.request_limits()));
  if (DeadlineOf(*context_) <= absl::Now()) {
    return absl::DeadlineExceededError("the deadline passed before the request was taken in");
  }
  if (request_.request_id.empty()) {
    request_.request_id = absl::StrCat("millrace-", door_.next_request.fetch_add(1));
  }
  RETURN_IF_ERROR(door_.calls->Add(request_.request_id, shared_from_this()));
  std::lock_guard lock(mu_);
  registered_ = true;
  return absl::OkStatus();
}

void GenerateCall::AdmitNowOrLater() {
  if (TextBytes(request_) <= door_.limits.inline_text_bytes) return Admit();
  const bool posted = door_.admission_pool->TryPost([call = shared_from_this()] { call->Admit(); });
  if (posted) return;
  EndWith(AddEngineFacts(
      absl::ResourceExhaustedError("QUEUE_FULL: too many long prompts wait to be tokenized")));
}

void GenerateCall::Admit() {
  if (ended_or_wished()) return;
  const absl::Status status = Submit();
  if (!status.ok()) EndWith(AddEngineFacts(status));
}

absl::Status GenerateCall::Submit() {
  ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, PromptIds(request_, door_.model()));
  const uint64_t seed = MixSeed(door_.seed, door_.next_request.fetch_add(1));
  ASSIGN_OR_RETURN(
      const SamplingParams sampling,
      ResolveSampling(request_, static_cast<int32_t>(prompt.size()), door_.model(), seed));
  door_.metrics->OnRequest(request_.n, sampling);
  MakeChoices(prompt, sampling);
  absl::Time deadline;
  {
    std::lock_guard lock(mu_);
    if (context_ == nullptr) return absl::CancelledError("the client is gone");
    deadline = DeadlineOf(*context_);
  }
  for (int32_t i = 0; i < request_.n; ++i) {
    Request sequence;
    sequence.id = door_.engine->NewId();
    sequence.prompt = prompt;
    sequence.sampling = sampling;
    sequence.sampling.seed += static_cast<uint64_t>(i);
    sequence.cache_salt = request_.cache_salt;
    sequence.deadline = deadline;
    const SequenceId id = sequence.id;
    RETURN_IF_ERROR(
        door_.engine->Submit(std::move(sequence), std::make_shared<Sink>(shared_from_this(), i)));
    std::lock_guard lock(mu_);
    sequences_.push_back(id);
    // The call ended or was aborted meanwhile, without seeing this sequence.
    if (finished_ || aborted_) door_.engine->Cancel(id, FinishReason::kAbort);
  }
  request_.prompt = TokenPrompt();
  return absl::OkStatus();
}

void GenerateCall::MakeChoices(const std::vector<int32_t>& prompt, const SamplingParams& sampling) {
  // The pump looks at the choices only after the first event, and events come after Submit.
  for (int32_t i = 0; i < request_.n; ++i) {
    ChoiceOptions options = {.index = i,
                             .stream = request_.stream,
                             .prompt_tokens = static_cast<int32_t>(prompt.size()),
                             .first_prompt_token = prompt[0],
                             .min_tokens = sampling.min_tokens,
                             .stop_token_ids = sampling.stop_token_ids,
                             .include_stop = request_.text.include_stop,
                             .prompt_logprobs = sampling.num_prompt_logprobs >= 0,
                             .arrival = arrival_};
    choices_.emplace_back(std::move(options),
                          TextStream(door_.model().tokenizer, request_.text, prompt));
  }
  completed_.assign(choices_.size(), false);
}

void GenerateCall::Enqueue(ChoiceEvent event) {
  {
    std::lock_guard lock(mu_);
    if (finished_ || wish_.has_value()) return;
    queue_.Push(std::move(event));
    if (queue_.bytes() > door_.limits.max_queued_bytes) {
      wish_ =
          WithReason(absl::ResourceExhaustedError(
                         "the client reads more slowly than tokens come, and its buffer is full"),
                     kReasonSlowReader);
    } else if (writing_) {
      return;  // OnWriteDone will look
    }
    if (pumping_) {
      again_ = true;
      return;
    }
    pumping_ = true;
  }
  // One task per call at most, so the pool cannot be full.
  MR_CHECK(door_.stream_pool->TryPost([call = shared_from_this()] { call->Pump(); }));
}

void GenerateCall::EndWith(absl::Status status) {
  {
    std::lock_guard lock(mu_);
    if (finished_ || wish_.has_value()) return;
    wish_ = std::move(status);
  }
  PumpHere();
}

bool GenerateCall::ended_or_wished() const {
  std::lock_guard lock(mu_);
  return finished_ || wish_.has_value();
}

void GenerateCall::Abort() {
  std::vector<SequenceId> sequences;
  {
    std::lock_guard lock(mu_);
    aborted_ = true;
    sequences = sequences_;
  }
  // Not admitted yet: nothing was generated, so there is no choice to complete.
  if (sequences.empty()) return EndWith(absl::CancelledError("the request was aborted"));
  for (SequenceId id : sequences) door_.engine->Cancel(id, FinishReason::kAbort);
}

void GenerateCall::Tick(MonotonicTime now) {
  const auto limit = door_.limits.slow_reader_timeout;
  {
    std::lock_guard lock(mu_);
    if (context_ == nullptr || !(writing_ || finished_)) return;
    if (finished_) {
      // The status waits behind data the client does not read.
      if (now - last_progress_ > std::min<MonotonicTime::duration>(limit, kMaxFarewell)) {
        context_->TryCancel();
      }
      return;
    }
    if (now - last_progress_ <= limit) return;
  }
  EndWith(WithReason(absl::ResourceExhaustedError(
                         absl::StrCat("the client read nothing for ", limit.count() / 1000, " s")),
                     kReasonSlowReader));
}

void GenerateCall::OnWriteDone(bool ok) {
  {
    std::lock_guard lock(mu_);
    writing_ = false;
    last_progress_ = MonotonicNow();
  }
  if (!ok) return EndWith(absl::CancelledError("the client is gone"));
  PumpHere();
}

void GenerateCall::OnCancel() {
  bool expired = false;
  {
    std::lock_guard lock(mu_);
    expired = context_ != nullptr && DeadlineOf(*context_) <= absl::Now();
  }
  if (expired) return EndWith(absl::DeadlineExceededError("the deadline passed"));
  EndWith(absl::CancelledError("the client is gone"));
}

void GenerateCall::OnDone() {
  std::shared_ptr<GenerateCall> self;  // destroyed last
  {
    std::lock_guard lock(mu_);
    context_ = nullptr;
    self = std::move(self_);
  }
  door_.calls->Remove(this);
}

void GenerateCall::PumpHere() {
  {
    std::lock_guard lock(mu_);
    if (pumping_) {
      again_ = true;
      return;
    }
    pumping_ = true;
  }
  Pump();
}

void GenerateCall::Pump() {
  const std::shared_ptr<GenerateCall> keep = shared_from_this();
  while (true) {
    PumpOnce();
    std::lock_guard lock(mu_);
    if (!again_) {
      pumping_ = false;
      return;
    }
    again_ = false;
  }
}

void GenerateCall::PumpOnce() {
  std::vector<ChoiceEvent> events;
  std::optional<absl::Status> wish;
  bool writing = false;
  {
    std::lock_guard lock(mu_);
    if (finished_) return;
    events = queue_.TakeAll();
    wish = wish_;
    writing = writing_;
  }
  if (wish.has_value()) return FinishCall(*wish);
  Apply(events);
  if (!choice_error_.ok()) return FinishCall(choice_error_);
  if (!writing) WriteNext();
}

void GenerateCall::Apply(const std::vector<ChoiceEvent>& events) {
  for (const ChoiceEvent& e : events) {
    ChoiceStream& choice = choices_[static_cast<size_t>(e.choice)];
    if (const auto* token = std::get_if<TokenEvent>(&e.event)) {
      const bool was_ended = choice.ended();
      const std::optional<double> interval = choice.OnToken(*token, e.at);
      if (interval.has_value()) door_.metrics->OnTokenInterval(*interval);
      if (!was_ended && choice.ended()) door_.engine->Cancel(token->id, FinishReason::kStop);
    } else {
      choice.OnFinish(std::get<FinishEvent>(e.event));
      if (!choice.error().ok()) choice_error_ = AddEngineFacts(choice.error());
    }
  }
}

void GenerateCall::WriteNext() {
  for (size_t step = 0; step < choices_.size(); ++step) {
    const size_t i = (next_choice_ + step) % choices_.size();
    if (choices_[i].has_news()) {
      next_choice_ = i + 1;
      response_ = ChunkToProto(choices_[i].TakeChunk());
      {
        std::lock_guard lock(mu_);
        writing_ = true;
        last_progress_ = MonotonicNow();
      }
      return StartWrite(&response_);
    }
    if (choices_[i].ended() && !completed_[i]) {
      next_choice_ = i + 1;
      return WriteComplete(i);
    }
  }
}

void GenerateCall::WriteComplete(size_t choice) {
  completed_[choice] = true;
  const ResponseComplete complete = choices_[choice].TakeComplete();
  door_.metrics->OnChoiceEnd(complete);
  response_ = CompleteToProto(complete);
  const bool last = std::all_of(completed_.begin(), completed_.end(), [](bool c) { return c; });
  {
    std::lock_guard lock(mu_);
    last_progress_ = MonotonicNow();
    writing_ = !last;
    finished_ = last;
  }
  if (!last) return StartWrite(&response_);
  door_.calls->ReleaseId(request_.request_id);
  door_.metrics->OnCallEnd(absl::StatusCode::kOk);
  StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
}

void GenerateCall::FinishCall(const absl::Status& status) {
  bool registered = false;
  std::vector<SequenceId> sequences;
  {
    std::lock_guard lock(mu_);
    finished_ = true;
    last_progress_ = MonotonicNow();
    registered = registered_;
    sequences = sequences_;
    queue_.TakeAll();
  }
  for (SequenceId id : sequences) door_.engine->Cancel(id, FinishReason::kAbort);
  if (registered) door_.calls->ReleaseId(request_.request_id);
  door_.metrics->OnCallEnd(status.code());
  if (GetErrorFacts(status).reason == kReasonSlowReader) door_.metrics->OnSlowReaderAbort();
  Finish(ToGrpcStatus(status));
}

}  // namespace millrace
