#include "tools/client/generate.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "distributed/wire/error_details.h"
#include "distributed/wire/request_codec.h"
#include "distributed/wire/response_codec.h"
#include "kernels/core/status.h"
#include "nlohmann/json.hpp"
#include "tools/common/terminal.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;

void SetDeadline(absl::Duration timeout, grpc::ClientContext& context) {
  if (timeout == absl::InfiniteDuration()) return;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
}

// Collects choices and writes what can be shown. With one choice text is shown as it comes, with
// more each is shown when it is whole.
class Display {
 public:
  Display(const ClientRequest& request, const ShowOptions& options, std::ostream& answer,
          std::ostream& notes)
      : many_(request.n > 1),
        options_(options),
        answer_(answer),
        notes_(notes),
        spinner_("waiting for the first token", notes, options.moving),
        printer_(answer, notes) {}

  void Show(ResponseChunk chunk) {
    spinner_.Stop();
    auto& scores = ScoresOf(chunk.index);
    std::move(chunk.logprobs.begin(), chunk.logprobs.end(), std::back_inserter(scores));
    if (options_.reading.has_value()) {
      const auto delta = AnswerOf(chunk.index).Push(chunk.text_delta);
      if (!options_.json && !many_) printer_.Show(delta);
      return;
    }
    if (options_.json || many_) return;
    answer_ << chunk.text_delta << std::flush;
    streamed_text_ = streamed_text_ || !chunk.text_delta.empty();
  }

  void Show(ResponseComplete complete) {
    spinner_.Stop();
    if (complete.logprobs.empty()) complete.logprobs = std::move(ScoresOf(complete.index));
    if (options_.reading.has_value()) {
      ShowRead(complete);
    } else if (!options_.json) {
      ShowWhole(complete);
    }
    choices_.push_back(std::move(complete));
  }

  void End() {
    spinner_.Stop();
    std::sort(choices_.begin(), choices_.end(),
              [](const auto& a, const auto& b) { return a.index < b.index; });
    if (options_.json) answer_ << AnswerJson(choices_, answers_) << std::endl;
  }

  // After an error in the middle of a line.
  void Break() {
    spinner_.Stop();
    if (streamed_text_) answer_ << std::endl;
  }

  bool complete() const { return !choices_.empty(); }

 private:
  void ShowWhole(const ResponseComplete& complete) {
    if (many_) answer_ << "--- choice " << complete.index << "\n" << complete.text;
    if (!many_ && !streamed_text_) answer_ << complete.text;
    if (complete.text.empty() && !complete.output_ids.empty()) ShowIds(complete.output_ids);
    answer_ << std::endl;
    if (options_.show_logprobs) ShowLogprobs(complete);
    notes_ << UsageLine(complete) << std::endl;
  }

  void ShowRead(const ResponseComplete& complete) {
    ChatAnswer& read = AnswerOf(complete.index);
    const auto delta = read.End(complete);
    if (options_.json) return;
    if (many_) answer_ << "--- choice " << complete.index << std::endl;
    // Of several choices, nothing was shown before.
    ChatPrinter whole(answer_, notes_);
    ChatPrinter& printer = many_ ? whole : printer_;
    printer.Show(many_ ? read.given() : delta);
    printer.End(read, complete.text);
    if (options_.show_logprobs) ShowLogprobs(complete);
    notes_ << UsageLine(complete) << std::endl;
  }

  void ShowIds(const std::vector<int32_t>& ids) {
    answer_ << "token ids:";
    for (int32_t id : ids) answer_ << ' ' << id;
  }

  void ShowLogprobs(const ResponseComplete& complete) {
    for (const ScoredToken& s : complete.logprobs) {
      notes_ << absl::StrFormat("%8d %9.4f  |", s.token.token, s.token.logprob);
      for (const TokenLogprob& t : s.top) notes_ << absl::StrFormat(" %d:%.4f", t.token, t.logprob);
      notes_ << "\n";
    }
  }

  ChatAnswer& AnswerOf(int32_t index) {
    const size_t i = Place(index);
    while (answers_.size() <= i) answers_.emplace_back(*options_.reading);
    return answers_[i];
  }

  static size_t Place(int32_t index) {
    return static_cast<size_t>(std::clamp(index, 0, kMaxChoices));
  }

  std::vector<ScoredToken>& ScoresOf(int32_t index) {
    const size_t i = Place(index);
    if (i >= scores_.size()) scores_.resize(i + 1);
    return scores_[i];
  }

  const bool many_;
  const ShowOptions options_;
  std::ostream& answer_;
  std::ostream& notes_;
  Spinner spinner_;
  ChatPrinter printer_;
  bool streamed_text_ = false;
  std::vector<std::vector<ScoredToken>> scores_;
  std::vector<ResponseComplete> choices_;
  std::vector<ChatAnswer> answers_;  // by index, when they are read
};

nlohmann::ordered_json ScoreJson(const ScoredToken& s) {
  nlohmann::ordered_json json = {{"token_id", s.token.token}, {"logprob", s.token.logprob}};
  for (const TokenLogprob& t : s.top) {
    json["top"].push_back({{"token_id", t.token}, {"logprob", t.logprob}});
  }
  return json;
}

nlohmann::ordered_json ChoiceJson(const ResponseComplete& c) {
  nlohmann::ordered_json json;
  json["index"] = c.index;
  json["text"] = c.text;
  json["token_ids"] = c.output_ids;
  json["finish_reason"] = std::string(FinishReasonName(c.finish_reason));
  if (c.matched_stop.has_value()) json["matched_stop"] = *c.matched_stop;
  if (c.matched_token.has_value()) json["matched_stop"] = *c.matched_token;
  for (const ScoredToken& s : c.logprobs) json["logprobs"].push_back(ScoreJson(s));
  if (c.prompt_scores.has_value()) {
    json["prompt_logprobs"].push_back({{"token_id", c.prompt_scores->first_token}});
    for (const ScoredToken& s : c.prompt_scores->rest) {
      json["prompt_logprobs"].push_back(ScoreJson(s));
    }
  }
  json["usage"] = {
      {"prompt_tokens", c.usage.prompt_tokens}, {"completion_tokens", c.usage.completion_tokens},
      {"cached_tokens", c.usage.cached_tokens}, {"ttft_seconds", c.usage.ttft_seconds},
      {"tpot_seconds", c.usage.tpot_seconds},   {"e2e_seconds", c.usage.e2e_seconds}};
  return json;
}

}  // namespace

std::string UsageLine(const ResponseComplete& complete) {
  const UsageFacts& u = complete.usage;
  std::string line = absl::StrFormat("[%s: %d prompt + %d new tokens",
                                     std::string(FinishReasonName(complete.finish_reason)),
                                     u.prompt_tokens, u.completion_tokens);
  if (u.cached_tokens > 0) line += absl::StrFormat(" (%d cached)", u.cached_tokens);
  if (u.completion_tokens > 0) line += absl::StrFormat(", TTFT %.3f s", u.ttft_seconds);
  if (u.tpot_seconds > 0) {
    line +=
        absl::StrFormat(", TPOT %.1f ms, %.1f tokens/s", 1e3 * u.tpot_seconds, 1 / u.tpot_seconds);
  }
  return line + "]";
}

std::string AnswerJson(const std::vector<ResponseComplete>& choices,
                       const std::vector<ChatAnswer>& messages) {
  nlohmann::ordered_json json;
  json["choices"] = nlohmann::ordered_json::array();
  for (const ResponseComplete& choice : choices) {
    nlohmann::ordered_json one = ChoiceJson(choice);
    const auto i = static_cast<size_t>(choice.index);
    if (i < messages.size()) {
      one["message"] = messages[i].Json();
      if (!messages[i].malformed().empty()) one["malformed"] = messages[i].malformed();
    }
    json["choices"].push_back(std::move(one));
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status GenerateAndShow(pb::VllmEngine::Stub& stub, const ClientRequest& request,
                             const ShowOptions& options, std::ostream& answer,
                             std::ostream& notes) {
  grpc::ClientContext context;
  SetDeadline(options.timeout, context);
  Display display(request, options, answer, notes);
  const auto reader = stub.Generate(&context, RequestToProto(request));
  pb::GenerateResponse message;
  absl::Status malformed;
  while (malformed.ok() && reader->Read(&message)) {
    auto news = ResponseFromProto(message);
    malformed = news.status();
    if (news.ok()) std::visit([&](auto& part) { display.Show(std::move(part)); }, *news);
  }
  if (!malformed.ok()) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!malformed.ok() || !status.ok()) {
    display.Break();
    return malformed.ok() ? FromGrpcStatus(status) : malformed;
  }
  display.End();
  if (!display.complete()) return absl::InternalError("the server's answer has no end");
  return absl::OkStatus();
}

}  // namespace millrace
