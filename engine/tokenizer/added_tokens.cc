#include "engine/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr size_t kMaxContentBytes = 4096;

// What the reference library takes for part of a word beside a single_word token.
constexpr std::string_view kWordCharacter = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}])";

// The beginning of the blanks that end at `end`.
size_t BlanksBefore(std::string_view text, size_t end) {
  while (end > 0) {
    const char32_t code = CodePointBefore(text, end);
    if (!IsWhitespace(code)) break;
    end -= code < 0x80 ? 1 : code < 0x800 ? 2 : 3;
  }
  return end;
}

size_t BlanksBehind(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t next = begin;
    if (!IsWhitespace(NextCodePoint(text, &next))) break;
    begin = next;
  }
  return begin;
}

}  // namespace

absl::StatusOr<AddedToken> AddedTokens::ReadToken(const JsonRef& spec) {
  RETURN_IF_ERROR(spec.CheckObject());
  AddedToken token;
  ASSIGN_OR_RETURN(const int64_t id, spec.Member("id").IndexBelow(kMaxTokens));
  token.id = static_cast<int32_t>(id);
  ASSIGN_OR_RETURN(token.content, spec.Member("content").String());
  if (token.content.size() > kMaxContentBytes) return spec.Error("content is too long");
  ASSIGN_OR_RETURN(token.special, spec.Member("special").BoolOr(false));
  ASSIGN_OR_RETURN(token.normalized, spec.Member("normalized").BoolOr(!token.special));
  ASSIGN_OR_RETURN(token.single_word, spec.Member("single_word").BoolOr(false));
  ASSIGN_OR_RETURN(token.lstrip, spec.Member("lstrip").BoolOr(false));
  ASSIGN_OR_RETURN(token.rstrip, spec.Member("rstrip").BoolOr(false));
  return token;
}

absl::Status AddedTokens::Insert(AddedToken token, const JsonRef& spec, const Vocabulary& model) {
  const auto in_model = model.Find(token.content);
  if (in_model.has_value() && *in_model != token.id) {
    return spec.Error(absl::StrCat("\"", token.content, "\" has id ", token.id, " here and id ",
                                   *in_model, " in model.vocab"));
  }
  if (!in_model.has_value() && model.Contains(token.id)) {
    return spec.Error(absl::StrCat("id ", token.id, " of \"", token.content, "\" is that of \"",
                                   std::string(model.Token(token.id)), "\" in model.vocab"));
  }
  if (!by_id_.emplace(token.id, tokens_.size()).second) {
    return spec.Error(absl::StrCat("id ", token.id, " is there twice"));
  }
  if (!by_content_.emplace(token.content, tokens_.size()).second) {
    return spec.Error(absl::StrCat("\"", token.content, "\" is there twice"));
  }
  TokenTrie& trie = token.normalized ? normalized_trie_ : raw_trie_;
  if (!token.matched.empty()) trie.Add(token.matched, static_cast<int32_t>(tokens_.size()));
  has_normalized_special_ = has_normalized_special_ || (token.normalized && token.special);
  tokens_.push_back(std::move(token));
  return absl::OkStatus();
}

absl::StatusOr<AddedTokens> AddedTokens::FromJson(const JsonRef& list, const Vocabulary& model,
                                                  const Normalizer& normalizer) {
  AddedTokens added;
  ASSIGN_OR_RETURN(added.word_character_, Regex::Compile(kWordCharacter));
  if (list.is_null()) return added;
  RETURN_IF_ERROR(list.CheckArray());
  RegexScratch scratch;
  scratch.has_newer_characters = true;
  for (size_t i = 0; i < list.value().size(); ++i) {
    const JsonRef spec = list.Element(i);
    ASSIGN_OR_RETURN(AddedToken token, ReadToken(spec));
    if (token.content.empty()) continue;  // as the reference library does
    token.matched = token.content;
    if (token.normalized) {
      bool at_start = true;
      RETURN_IF_ERROR(normalizer.Apply(&token.matched, &at_start, &scratch));
    }
    RETURN_IF_ERROR(added.Insert(std::move(token), spec, model));
  }
  return added;
}

bool AddedTokens::IsWholeWord(std::string_view text, const TokenTrie::Hit& hit,
                              RegexScratch* scratch) const {
  const auto is_word = [&](char32_t code) {
    std::string character;
    AppendUtf8(code, &character);
    RegexMatch match;
    return RegexIterator(*word_character_, character, scratch).Next(&match);
  };
  if (hit.begin > 0 && is_word(CodePointBefore(text, hit.begin))) return false;
  size_t end = hit.end;
  return end >= text.size() || !is_word(NextCodePoint(text, &end));
}

void AddedTokens::Split(std::string_view text, Stage stage, const LiteralSpans& literal,
                        RegexScratch* scratch, std::vector<Part>* parts) const {
  parts->clear();
  size_t done = 0;
  TokenTrie::Hit hit;
  for (size_t from = 0; trie(stage).Find(text, from, &hit);) {
    const AddedToken& token = tokens_[static_cast<size_t>(hit.value)];
    from = hit.end;
    if (token.special || literal.scope() == LiteralScope::kAddedTokens) {
      if (const TextSpan* span = literal.Overlapping(hit.begin, hit.end); span != nullptr) {
        // Behind the span a token of the text around it may begin.
        from = std::max(hit.begin + 1, std::min(hit.end, span->end));
        continue;
      }
    }
    if (token.single_word && !IsWholeWord(text, hit, scratch)) continue;
    const size_t begin = token.lstrip ? std::max(BlanksBefore(text, hit.begin), done) : hit.begin;
    const size_t end = token.rstrip ? BlanksBehind(text, hit.end) : hit.end;
    if (done < begin) parts->push_back({done, begin, -1});
    parts->push_back({begin, end, token.id});
    done = end;
    from = end;  // blanks that were taken begin no token
  }
  if (done < text.size()) parts->push_back({done, text.size(), -1});
}

}  // namespace millrace
