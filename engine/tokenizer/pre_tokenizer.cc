#include "engine/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using Part = PreTokenizerScratch::Part;

constexpr int kMaxDepth = 8;
constexpr size_t kMaxSteps = 64;

// Rust's notion of a word character, which the Whitespace pre-tokenizer uses.
constexpr std::string_view kWordsPattern =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|[^\s\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+)";

// Joins parts so that each match hangs on the part before it (or behind it, on reversed input);
// of adjacent matches only the first does.
void MergeMatches(std::vector<Part>* parts) {
  size_t kept = 0;
  bool previous_match = false;
  for (const Part part : *parts) {
    if (part.is_match && !previous_match && kept > 0) {
      Part& last = (*parts)[kept - 1];
      last.begin = std::min(last.begin, part.begin);
      last.end = std::max(last.end, part.end);
    } else {
      (*parts)[kept++] = part;
    }
    previous_match = part.is_match;
  }
  parts->resize(kept);
}

void MergeContiguous(std::vector<Part>* parts) {
  size_t kept = 0;
  for (const Part part : *parts) {
    if (kept > 0 && (*parts)[kept - 1].is_match == part.is_match) {
      (*parts)[kept - 1].end = part.end;
    } else {
      (*parts)[kept++] = part;
    }
  }
  parts->resize(kept);
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const JsonRef& spec) {
  PreTokenizer pre_tokenizer;
  if (spec.is_null()) return pre_tokenizer;
  RETURN_IF_ERROR(pre_tokenizer.Read(spec, 0));
  return pre_tokenizer;
}

absl::StatusOr<PreTokenizer::Behavior> PreTokenizer::ReadBehavior(const JsonRef& spec) {
  constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  ASSIGN_OR_RETURN(const std::string name, spec.String());
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  return spec.Error("behavior \"" + name + "\" is not supported");
}

PreTokenizer::Step PreTokenizer::SplitStep(Pattern pattern, Behavior behavior, bool invert) {
  Step step;
  step.pattern = std::move(pattern);
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

absl::Status PreTokenizer::Read(const JsonRef& spec, int depth) {
  if (depth > kMaxDepth) return spec.Error("sequences nested too deeply");
  if (steps_.size() >= kMaxSteps) return spec.Error("too many pre-tokenizers");
  ASSIGN_OR_RETURN(const std::string type, spec.Type());
  if (type == "Sequence") {
    const JsonRef list = spec.Member("pretokenizers");
    RETURN_IF_ERROR(list.CheckArray());
    for (size_t i = 0; i < list.value().size(); ++i) {
      RETURN_IF_ERROR(Read(list.Element(i), depth + 1));
    }
    return absl::OkStatus();
  }
  if (byte_level_) return spec.Error("a pre-tokenizer behind ByteLevel is not supported");
  return ReadOne(type, spec);
}

absl::Status PreTokenizer::ReadOne(const std::string& type, const JsonRef& spec) {
  if (type == "ByteLevel") return ReadByteLevel(spec);
  if (type == "Metaspace") return ReadMetaspace(spec);
  if (type == "Split") {
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromJson(spec.Member("pattern")));
    ASSIGN_OR_RETURN(const Behavior behavior, ReadBehavior(spec.Member("behavior")));
    ASSIGN_OR_RETURN(const bool invert, spec.Member("invert").BoolOr(false));
    steps_.push_back(SplitStep(std::move(pattern), behavior, invert));
  } else if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, spec.Member("individual_digits").BoolOr(false));
    steps_.push_back(SplitStep(Pattern::OfCharacters(IsNumeric),
                               individual ? Behavior::kIsolated : Behavior::kContiguous, false));
  } else if (type == "Punctuation") {
    Behavior behavior = Behavior::kIsolated;
    if (const JsonRef given = spec.Member("behavior"); !given.is_null()) {
      ASSIGN_OR_RETURN(behavior, ReadBehavior(given));
    }
    steps_.push_back(SplitStep(Pattern::OfCharacters(IsPunctuation), behavior, false));
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(SplitStep(Pattern::OfCharacters(IsWhitespace), Behavior::kRemoved, false));
  } else if (type == "Whitespace") {
    ASSIGN_OR_RETURN(Pattern words, Pattern::OfRegex(kWordsPattern));
    steps_.push_back(SplitStep(std::move(words), Behavior::kRemoved, true));
  } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
    ASSIGN_OR_RETURN(std::string delimiter, spec.Member("delimiter").String());
    if (delimiter.empty()) return spec.Error("empty delimiter");
    steps_.push_back(
        SplitStep(Pattern::OfLiteral(std::move(delimiter)), Behavior::kRemoved, false));
  } else {
    return spec.Error("pre-tokenizer type \"" + type + "\" is not supported");
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::ReadByteLevel(const JsonRef& spec) {
  ASSIGN_OR_RETURN(const bool prefix_space, spec.Member("add_prefix_space").BoolOr(true));
  ASSIGN_OR_RETURN(const bool use_regex, spec.Member("use_regex").BoolOr(true));
  if (prefix_space) {
    Step step;
    step.kind = Kind::kPrefixSpace;
    steps_.push_back(std::move(step));
  }
  if (use_regex) {
    ASSIGN_OR_RETURN(Pattern words, Pattern::OfRegex(kGpt2Pattern));
    steps_.push_back(SplitStep(std::move(words), Behavior::kIsolated, false));
  }
  byte_level_ = true;
  return absl::OkStatus();
}

absl::Status PreTokenizer::ReadMetaspace(const JsonRef& spec) {
  Step step;
  step.kind = Kind::kMetaspace;
  ASSIGN_OR_RETURN(step.replacement, spec.Member("replacement").String());
  const unsigned char lead =
      step.replacement.empty() ? '\0' : static_cast<unsigned char>(step.replacement[0]);
  if (step.replacement.empty() || step.replacement.size() != Utf8Length(lead)) {
    return spec.Member("replacement").Error("want one character");
  }
  std::string scheme = "always";
  if (const JsonRef given = spec.Member("prepend_scheme"); !given.is_null()) {
    ASSIGN_OR_RETURN(scheme, given.String());
  }
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return spec.Error("prepend_scheme \"" + scheme + "\" is not supported");
  }
  ASSIGN_OR_RETURN(const bool prefix_space, spec.Member("add_prefix_space").BoolOr(true));
  if (!prefix_space && scheme != "never") {
    return spec.Error("add_prefix_space false contradicts prepend_scheme \"" + scheme + "\"");
  }
  step.prepend = scheme == "always"  ? Prepend::kAlways
                 : scheme == "first" ? Prepend::kFirst
                                     : Prepend::kNever;
  ASSIGN_OR_RETURN(const bool split, spec.Member("split").BoolOr(true));
  const std::string replacement = step.replacement;
  steps_.push_back(std::move(step));
  if (split) {
    steps_.push_back(SplitStep(Pattern::OfLiteral(replacement), Behavior::kMergedWithNext, false));
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::Split(std::string_view text, bool at_start, PreTokenizerScratch* scratch,
                                 Sink sink) const {
  while (scratch->levels.size() < steps_.size()) scratch->levels.emplace_back();
  return Run(0, Piece{text, at_start}, scratch, sink);
}

absl::Status PreTokenizer::Run(size_t step, Piece piece, PreTokenizerScratch* scratch,
                               Sink sink) const {
  if (piece.text.empty()) return absl::OkStatus();
  if (step == steps_.size()) {
    sink(piece.text);
    return absl::OkStatus();
  }
  switch (steps_[step].kind) {
    case Kind::kMetaspace:
      return RunMetaspace(step, piece, scratch, sink);
    case Kind::kPrefixSpace: {
      if (piece.text[0] == ' ') return Run(step + 1, piece, scratch, sink);
      std::string& text = scratch->levels[step].text;
      text.assign(1, ' ');
      text.append(piece.text);
      return Run(step + 1, Piece{text, piece.at_start}, scratch, sink);
    }
    case Kind::kSplit:
      break;
  }
  return steps_[step].behavior == Behavior::kIsolated ? RunIsolated(step, piece, scratch, sink)
                                                      : RunSplit(step, piece, scratch, sink);
}

// The common case, without a list of parts: matches and what lies between them are all kept.
absl::Status PreTokenizer::RunIsolated(size_t step, Piece piece, PreTokenizerScratch* scratch,
                                       Sink sink) const {
  size_t done = 0;
  absl::Status failure;
  const auto emit = [&](size_t end) {
    if (end == done || !failure.ok()) return;
    failure = Run(step + 1, Piece{piece.text.substr(done, end - done), piece.at_start && done == 0},
                  scratch, sink);
    done = end;
  };
  RETURN_IF_ERROR(
      steps_[step].pattern->ForEachMatch(piece.text, &scratch->regex, [&](RegexMatch match) {
        emit(match.begin);
        emit(match.end);
      }));
  emit(piece.text.size());
  return failure;
}

absl::Status PreTokenizer::RunSplit(size_t step, Piece piece, PreTokenizerScratch* scratch,
                                    Sink sink) const {
  const Step& split = steps_[step];
  std::vector<Part>& parts = scratch->levels[step].parts;
  parts.clear();
  size_t done = 0;
  RETURN_IF_ERROR(split.pattern->ForEachMatch(piece.text, &scratch->regex, [&](RegexMatch match) {
    if (match.begin != done) parts.push_back({done, match.begin, split.invert});
    parts.push_back({match.begin, match.end, !split.invert});
    done = match.end;
  }));
  if (done != piece.text.size()) parts.push_back({done, piece.text.size(), split.invert});
  switch (split.behavior) {
    case Behavior::kContiguous:
      MergeContiguous(&parts);
      break;
    case Behavior::kMergedWithPrevious:
      MergeMatches(&parts);
      break;
    case Behavior::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      MergeMatches(&parts);
      std::reverse(parts.begin(), parts.end());
      break;
    case Behavior::kRemoved:
    case Behavior::kIsolated:
      break;
  }
  for (const Part& part : parts) {
    if (split.behavior == Behavior::kRemoved && part.is_match) continue;
    const Piece next{piece.text.substr(part.begin, part.end - part.begin),
                     piece.at_start && part.begin == 0};
    RETURN_IF_ERROR(Run(step + 1, next, scratch, sink));
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::RunMetaspace(size_t step, Piece piece, PreTokenizerScratch* scratch,
                                        Sink sink) const {
  const Step& meta = steps_[step];
  std::string& text = scratch->levels[step].text;
  text.clear();
  const bool marked =
      piece.text[0] == ' ' || piece.text.substr(0, meta.replacement.size()) == meta.replacement;
  const bool wanted =
      meta.prepend == Prepend::kAlways || (meta.prepend == Prepend::kFirst && piece.at_start);
  if (wanted && !marked) text = meta.replacement;
  for (size_t pos = 0; pos < piece.text.size();) {
    const size_t space = std::min(piece.text.find(' ', pos), piece.text.size());
    text.append(piece.text.substr(pos, space - pos));
    if (space < piece.text.size()) text.append(meta.replacement);
    pos = space + 1;
  }
  return Run(step + 1, Piece{text, piece.at_start}, scratch, sink);
}

}  // namespace millrace
