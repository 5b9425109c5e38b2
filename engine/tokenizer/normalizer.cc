#include "engine/tokenizer/normalizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxSteps = 64;

constexpr std::pair<std::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                              {"NFD", NormalForm::kNfd},
                                                              {"NFKC", NormalForm::kNfkc},
                                                              {"NFKD", NormalForm::kNfkd}};

void Strip(bool left, bool right, std::string* text, bool* at_start) {
  const std::string_view all = *text;
  size_t begin = 0;
  size_t end = all.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!IsWhitespace(NextCodePoint(all, &next))) break;
    begin = next;
  }
  while (right && end > begin) {
    const char32_t last = CodePointBefore(all, end);
    if (!IsWhitespace(last)) break;
    std::string encoded;
    AppendUtf8(last, &encoded);
    end -= encoded.size();
  }
  if (begin > 0) *at_start = false;
  *text = text->substr(begin, end - begin);
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const JsonRef& spec) {
  Normalizer normalizer;
  if (spec.is_null()) return normalizer;
  RETURN_IF_ERROR(Read(spec, 0, &normalizer.steps_));
  return normalizer;
}

absl::Status Normalizer::Read(const JsonRef& spec, int depth, std::vector<Step>* steps) {
  if (depth > kMaxDepth) return spec.Error("sequences nested too deeply");
  if (steps->size() >= kMaxSteps) return spec.Error("too many normalizers");
  ASSIGN_OR_RETURN(const std::string type, spec.Type());
  if (type == "Sequence") {
    const JsonRef list = spec.Member("normalizers");
    RETURN_IF_ERROR(list.CheckArray());
    for (size_t i = 0; i < list.value().size(); ++i) {
      RETURN_IF_ERROR(Read(list.Element(i), depth + 1, steps));
    }
    return absl::OkStatus();
  }
  Step step;
  if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    ASSIGN_OR_RETURN(step.content, spec.Member("prepend").String());
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    ASSIGN_OR_RETURN(step.pattern, Pattern::FromJson(spec.Member("pattern")));
    ASSIGN_OR_RETURN(step.content, spec.Member("content").String());
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    ASSIGN_OR_RETURN(step.left, spec.Member("strip_left").Bool());
    ASSIGN_OR_RETURN(step.right, spec.Member("strip_right").Bool());
  } else if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type != "Lowercase") {
    step.kind = Kind::kNormalForm;
    bool known = false;
    for (const auto& [name, form] : kForms) {
      if (type != name) continue;
      step.form = static_cast<int>(form);
      known = true;
    }
    if (!known) return spec.Error("normalizer type \"" + type + "\" is not supported");
  }
  steps->push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status Normalizer::Replace(const Step& step, std::string* text, bool* at_start,
                                 RegexScratch* scratch) {
  std::string out;
  size_t copied = 0;
  const std::string_view all = *text;
  RETURN_IF_ERROR(step.pattern->ForEachMatch(all, scratch, [&](RegexMatch match) {
    out.append(all.substr(copied, match.begin - copied));
    out.append(step.content);
    copied = match.end;
    if (match.begin > 0 || match.end == 0) return;
    // One character replaced by something still stands where the input begins; more do not.
    const bool one = match.end == Utf8Length(static_cast<unsigned char>(all[0]));
    if (!one || step.content.empty()) *at_start = false;
  }));
  if (copied == 0 && out.empty()) return absl::OkStatus();
  out.append(all.substr(copied));
  *text = std::move(out);
  return absl::OkStatus();
}

absl::Status Normalizer::Apply(std::string* text, bool* at_start, RegexScratch* scratch) const {
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kPrepend:
        if (!text->empty()) text->insert(0, step.content);
        break;
      case Kind::kReplace:
        RETURN_IF_ERROR(Replace(step, text, at_start, scratch));
        break;
      case Kind::kNormalForm:
        *text = Normalize(*text, static_cast<NormalForm>(step.form));
        break;
      case Kind::kStrip:
        Strip(step.left, step.right, text, at_start);
        break;
      case Kind::kLowercase:
        *text = Lowercase(*text);
        break;
      case Kind::kByteLevel:
        *text = EncodeByteLevel(*text);
        break;
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
