#include "engine/chat/deepseek_v4/completion_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/chat/deepseek_v4/fixed_texts.h"
#include "kernels/core/check.h"

namespace millrace::deepseek_v4 {
namespace {

using Tokens = absl::Span<const std::string_view>;

constexpr std::string_view kCallsBlock = "\n\n<｜DSML｜tool_calls";
constexpr std::string_view kParameterClose = "/｜DSML｜parameter";

// What is looked for in each state. In the texts that are also the tokens that must not be there.
constexpr std::string_view kInText[] = {kThinkEnd,        kEndOfSentence, kCallsBlock,
                                        kBeginOfSentence, kThinkBegin,    kDsml};
constexpr std::string_view kBetweenTokens[] = {kInvokeBegin, kCallsEnd};
constexpr std::string_view kInvokeTokens[] = {kParameterBegin, kInvokeEnd};
constexpr std::string_view kParameterTokens[] = {kParameterClose};
constexpr std::string_view kEndTokens[] = {kEndOfSentence};

// What stands behind a tag's name.
constexpr std::string_view kTagEnd = ">\n";

}  // namespace

CompletionParser::CompletionParser(ThinkingMode mode)
    : state_(mode == ThinkingMode::kThinking ? State::kReasoning : State::kContent) {}

const Completion& CompletionParser::completion() const {
  MR_CHECK(finished_);
  return completion_;
}

CompletionDelta CompletionParser::Push(std::string_view bytes) {
  MR_CHECK(!finished_);
  const size_t begin = completion_.text.size();
  size_t taken = 0;
  for (; taken < bytes.size(); ++taken) {
    const Utf8Tracker::State state = utf8_.Push(static_cast<unsigned char>(bytes[taken]));
    if (state == Utf8Tracker::State::kInvalid) break;
    if (state == Utf8Tracker::State::kComplete) complete_ = begin + taken + 1;
  }
  CompletionDelta delta;
  completion_.text += bytes.substr(0, taken);
  if (taken > 0) Advance(/*final=*/false, &delta);
  if (taken < bytes.size()) {
    Fail(absl::StrCat("byte ", begin + taken, " is not UTF-8"));
    completion_.text += bytes.substr(taken);
  }
  return delta;
}

CompletionDelta CompletionParser::Finish() {
  MR_CHECK(!finished_);
  CompletionDelta delta;
  Advance(/*final=*/true, &delta);
  if (utf8_.state() == Utf8Tracker::State::kPartial) Fail("the text ends inside a character");
  finished_ = true;
  return delta;
}

void CompletionParser::Advance(bool final, CompletionDelta* delta) {
  for (;;) {
    Tokens watched;
    switch (state_) {
      case State::kReasoning:
      case State::kContent:
        watched = kInText;
        break;
      case State::kBetweenCalls:
        watched = kBetweenTokens;
        break;
      case State::kInvokeName:
      case State::kAfterParameter:
        watched = kInvokeTokens;
        break;
      case State::kParameter:
        watched = kParameterTokens;
        break;
      case State::kAfterCalls:
        watched = kEndTokens;
        break;
      case State::kEnd:
        if (region_ < completion_.text.size()) Fail("text behind the end-of-sentence token");
        return;
      case State::kMalformed:
        return;
    }
    const std::string_view* token = FindToken(watched, final);
    Emit(delta);
    const std::string_view text = completion_.text;
    const std::string_view region = text.substr(region_, scan_ - region_);
    if (token == nullptr) {
      if (final) End(region, delta);
      return;
    }
    Step(region, *token, delta);
    region_ = scan_ = emitted_ = scan_ + token->size();
  }
}

const std::string_view* CompletionParser::FindToken(Tokens watched, bool final) {
  const std::string_view text = completion_.text;
  for (; scan_ < text.size(); ++scan_) {
    for (const std::string_view& token : watched) {
      if (text[scan_] != token[0]) continue;
      const std::string_view here = text.substr(scan_, token.size());
      if (here == token) return &token;
      if (!final && token.starts_with(here)) return nullptr;
    }
  }
  return nullptr;
}

void CompletionParser::Emit(CompletionDelta* delta) {
  if (state_ != State::kReasoning && state_ != State::kContent) return;
  const size_t end = std::min(scan_, complete_);
  if (end <= emitted_) return;
  std::string& out = state_ == State::kContent ? delta->content : delta->reasoning_content;
  out += std::string_view(completion_.text).substr(emitted_, end - emitted_);
  emitted_ = end;
}

void CompletionParser::Step(std::string_view region, std::string_view token,
                            CompletionDelta* delta) {
  if (state_ == State::kReasoning || state_ == State::kContent) {
    StepText(region, token);
  } else {
    StepInCalls(region, token, delta);
  }
}

void CompletionParser::StepText(std::string_view region, std::string_view token) {
  if (state_ == State::kReasoning && token == kThinkEnd) {
    completion_.reasoning_content = std::string(region);
    state_ = State::kContent;
  } else if (state_ == State::kContent && token == kEndOfSentence) {
    completion_.content = std::string(region);
    completion_.ended = true;
    state_ = State::kEnd;
  } else if (state_ == State::kContent && token == kCallsBlock) {
    completion_.content = std::string(region);
    state_ = State::kBetweenCalls;
  } else {
    const char* where = state_ == State::kReasoning ? " in the reasoning" : " in the content";
    const std::string_view shown = token == kCallsBlock ? kCallsBegin : token;
    Fail(absl::StrCat(std::string(shown), where));
  }
}

void CompletionParser::StepInCalls(std::string_view region, std::string_view token,
                                   CompletionDelta* delta) {
  switch (state_) {
    case State::kBetweenCalls:
      if (region != kTagEnd) return Fail("want a line break, then a call or the end of the calls");
      state_ = token == kInvokeBegin ? State::kInvokeName : State::kAfterCalls;
      return;
    case State::kInvokeName: {
      std::optional<std::string> name = ReadInvokeName(region);
      if (!name.has_value()) return Fail("a call without a proper name");
      call_name_ = std::move(*name);
      break;
    }
    case State::kParameter:
      return AddParameter(region);
    case State::kAfterParameter:
      if (region != kTagEnd) return Fail("want a line break behind a parameter");
      break;
    default:  // kAfterCalls
      if (!region.empty()) return Fail("text behind the tool calls");
      completion_.ended = true;
      state_ = State::kEnd;
      return;
  }
  if (token == kParameterBegin) {
    state_ = State::kParameter;
  } else {
    CloseCall(delta);
  }
}

void CompletionParser::End(std::string_view region, CompletionDelta* delta) {
  switch (state_) {
    case State::kReasoning:
      return Fail("the reasoning has no end");
    case State::kContent:
      return Fail("the content has no end");
    case State::kParameter:
      return Fail("a parameter has no end");
    case State::kBetweenCalls:
    case State::kAfterCalls:
      if (!region.empty()) Fail("the text ends among the tool calls");
      return;
    default:  // kInvokeName, kAfterParameter: a call that nothing closes
      StepInCalls(region, kInvokeEnd, delta);
  }
}

void CompletionParser::AddParameter(std::string_view region) {
  std::optional<DsmlParameter> parameter = ReadParameter(region);
  if (!parameter.has_value()) return Fail("a parameter that cannot be read");
  if (!call_parameter_names_.insert(parameter->name).second) {
    return Fail(absl::StrCat("the parameter '", parameter->name, "' is there twice"));
  }
  call_parameters_.push_back(std::move(*parameter));
  state_ = State::kAfterParameter;
}

void CompletionParser::CloseCall(CompletionDelta* delta) {
  ToolCall call{.name = std::move(call_name_), .arguments = ArgumentsOf(call_parameters_)};
  call_name_.clear();
  call_parameters_.clear();
  call_parameter_names_.clear();
  completion_.tool_calls.push_back(call);
  delta->tool_calls.push_back(std::move(call));
  state_ = State::kBetweenCalls;
}

void CompletionParser::Fail(std::string what) {
  if (state_ == State::kMalformed) return;
  state_ = State::kMalformed;
  completion_.malformed = std::move(what);
  completion_.reasoning_content.clear();
  completion_.content.clear();
  completion_.tool_calls.clear();
  completion_.ended = false;
}

}  // namespace millrace::deepseek_v4
