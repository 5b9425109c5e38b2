#include "engine/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/newer_characters.h"
#include "engine/tokenizer/regex_syntax.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr size_t kJitStackStart = 32 << 10;
constexpr size_t kJitStackMax = 8 << 20;

std::string ErrorText(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

PCRE2_SPTR Subject(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct RegexScratch::Impl {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);

  Impl() { pcre2_jit_stack_assign(context, nullptr, stack); }
  ~Impl() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {}
RegexScratch::~RegexScratch() = default;

struct Regex::Impl {
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Impl() { pcre2_code_free(code); }
};

Regex::Regex() : impl_(std::make_unique<Impl>()) {}
Regex::~Regex() = default;

absl::StatusOr<std::shared_ptr<const Regex>> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern of ", pattern.size(), " bytes, at most ", kMaxPatternBytes));
  }
  ASSIGN_OR_RETURN(const std::string translated, OnigurumaToPcre2(pattern));
  std::shared_ptr<Regex> regex(new Regex());
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  regex->impl_->code = pcre2_compile(
      Subject(translated), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (regex->impl_->code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("pattern \"", std::string(pattern),
                                                   "\" cannot be compiled: ", ErrorText(error)));
  }
  regex->impl_->jit = pcre2_jit_compile(regex->impl_->code, PCRE2_JIT_COMPLETE) == 0;
  return std::shared_ptr<const Regex>(std::move(regex));
}

int Regex::Search(std::string_view text, size_t from, RegexScratch* scratch,
                  RegexMatch* match) const {
  RegexScratch::Impl& work = *scratch->impl_;
  const int rc = impl_->jit ? pcre2_jit_match(impl_->code, Subject(text), text.size(), from, 0,
                                              work.data, work.context)
                            : pcre2_match(impl_->code, Subject(text), text.size(), from,
                                          PCRE2_NO_UTF_CHECK, work.data, work.context);
  if (rc == PCRE2_ERROR_NOMATCH) return 0;
  if (rc < 0) return rc;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(work.data);
  match->begin = bounds[0];
  match->end = bounds[1];
  return 1;
}

RegexIterator::RegexIterator(const Regex& regex, std::string_view text, RegexScratch* scratch)
    : regex_(regex), text_(text), scratch_(scratch) {
  if (!scratch->has_newer_characters || !HasNewerCharacters(text)) return;
  stand_in_ = WithStandIns(text);
  text_ = stand_in_;
}

bool RegexIterator::Next(RegexMatch* match) {
  while (from_ <= text_.size()) {
    const int found = regex_.Search(text_, from_, scratch_, match);
    if (found < 0) {
      status_ =
          absl::ResourceExhaustedError(absl::StrCat("the tokenizer's pattern gave up on a text of ",
                                                    text_.size(), " bytes: ", ErrorText(found)));
    }
    if (found <= 0) break;
    if (match->begin == match->end && match->end == last_end_) {
      if (from_ >= text_.size()) break;
      from_ += Utf8Length(static_cast<unsigned char>(text_[from_]));
      continue;
    }
    from_ = match->end;
    last_end_ = match->end;
    return true;
  }
  from_ = text_.size() + 1;
  return false;
}

}  // namespace millrace
