#include "distributed/controller/frontdoor/text_stream.h"

#include <utility>

#include "engine/tokenizer/detokenizer.h"
#include "engine/tokenizer/stop_matcher.h"
#include "kernels/core/check.h"

namespace millrace {

struct TextStream::Parts {
  Parts(std::shared_ptr<const Tokenizer> t, const TextOptions& options,
        absl::Span<const int32_t> prompt)
      : tokenizer(std::move(t)),
        detokenizer(*tokenizer, options.skip_special_tokens, prompt),
        stops(options.stop),
        matcher(options.stop, options.include_stop) {}

  const std::shared_ptr<const Tokenizer> tokenizer;
  IncrementalDetokenizer detokenizer;
  const std::vector<std::string> stops;
  StopMatcher matcher;
};

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer, const TextOptions& options,
                       absl::Span<const int32_t> prompt) {
  if (tokenizer == nullptr) return;
  parts_ = std::make_unique<Parts>(std::move(tokenizer), options, prompt);
}

TextStream::~TextStream() = default;
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;

std::string TextStream::Push(int32_t token, bool may_stop) {
  MR_CHECK(!matched_.has_value());
  if (parts_ == nullptr) return "";
  std::string text = parts_->detokenizer.Push(token);
  if (!may_stop || parts_->stops.empty()) return text;
  return Match(text);
}

std::string TextStream::Match(const std::string& text) {
  StopMatcher::Result result = parts_->matcher.Push(text);
  if (result.matched.has_value()) matched_ = parts_->stops[static_cast<size_t>(*result.matched)];
  return std::move(result.emit);
}

std::string TextStream::Finish() {
  if (parts_ == nullptr || matched_.has_value()) return "";
  const std::string rest = parts_->detokenizer.Finish();
  if (parts_->stops.empty()) return rest;
  std::string text = Match(rest);
  if (!matched_.has_value()) text += parts_->matcher.Flush();
  return text;
}

}  // namespace millrace
