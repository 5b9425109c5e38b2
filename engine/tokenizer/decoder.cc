#include "engine/tokenizer/decoder.h"

#include <cctype>
#include <limits>
#include <utility>

#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxSteps = 64;
constexpr int64_t kMaxStrip = 1 << 16;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

absl::StatusOr<char32_t> OneCharacter(const JsonRef& spec) {
  ASSIGN_OR_RETURN(const std::string text, spec.String());
  if (text.empty() || text.size() != Utf8Length(static_cast<unsigned char>(text[0]))) {
    return spec.Error("want one character");
  }
  size_t pos = 0;
  return NextCodePoint(text, &pos);
}

// Strips the ends of one token.
std::string StripEnds(const Decoder::StripRule& rule, std::string_view text) {
  for (int64_t i = 0; i < rule.start && !text.empty(); ++i) {
    size_t next = 0;
    if (NextCodePoint(text, &next) != rule.content) break;
    text.remove_prefix(next);
  }
  std::string content;
  AppendUtf8(rule.content, &content);
  for (int64_t i = 0; i < rule.stop && !text.empty(); ++i) {
    if (CodePointBefore(text, text.size()) != rule.content) break;
    text.remove_suffix(content.size());
  }
  return std::string(text);
}

}  // namespace

// Sorts the steps of a list into the stages.
struct Decoder::Reader {
  Decoder* decoder;
  bool fused = false;  // tokens have been joined: from here on the text is one
  size_t steps = 0;

  absl::Status Read(const JsonRef& spec, int depth) {
    if (depth > kMaxDepth) return spec.Error("sequences nested too deeply");
    if (++steps > kMaxSteps) return spec.Error("too many decoders");
    ASSIGN_OR_RETURN(const std::string type, spec.Type());
    if (type == "Sequence") {
      const JsonRef list = spec.Member("decoders");
      RETURN_IF_ERROR(list.CheckArray());
      for (size_t i = 0; i < list.value().size(); ++i) {
        RETURN_IF_ERROR(Read(list.Element(i), depth + 1));
      }
      return absl::OkStatus();
    }
    if (type == "Fuse") {
      fused = true;
      return absl::OkStatus();
    }
    if (type == "Strip") return ReadStrip(spec);
    if (fused) return spec.Error("\"" + type + "\" behind Fuse or ByteLevel is not supported");
    if (type == "ByteLevel") {
      decoder->byte_level_ = true;
      fused = true;
      return absl::OkStatus();
    }
    if (type == "ByteFallback") {
      if (decoder->byte_fallback_) return spec.Error("ByteFallback is there twice");
      decoder->byte_fallback_ = true;
      return absl::OkStatus();
    }
    Step step;
    if (type == "Replace") {
      ASSIGN_OR_RETURN(step.pattern, Pattern::FromJson(spec.Member("pattern")));
      ASSIGN_OR_RETURN(step.content, spec.Member("content").String());
    } else if (type == "Metaspace") {
      RETURN_IF_ERROR(ReadMetaspace(spec, &step));
    } else {
      return spec.Error("decoder type \"" + type + "\" is not supported");
    }
    Add(std::move(step));
    return absl::OkStatus();
  }

  absl::Status ReadStrip(const JsonRef& spec) {
    Step step;
    step.kind = Kind::kStrip;
    ASSIGN_OR_RETURN(step.strip.content, OneCharacter(spec.Member("content")));
    ASSIGN_OR_RETURN(step.strip.start, spec.Member("start").IndexBelow(kMaxStrip));
    ASSIGN_OR_RETURN(step.strip.stop, spec.Member("stop").IndexBelow(kMaxStrip));
    if (fused) {
      decoder->strips_.push_back(step.strip);
    } else {
      Add(std::move(step));
    }
    return absl::OkStatus();
  }

  static absl::Status ReadMetaspace(const JsonRef& spec, Step* step) {
    step->kind = Kind::kMetaspace;
    RETURN_IF_ERROR(OneCharacter(spec.Member("replacement")).status());
    ASSIGN_OR_RETURN(const std::string mark, spec.Member("replacement").String());
    step->pattern = Pattern::OfLiteral(mark);
    step->content = " ";
    const JsonRef scheme = spec.Member("prepend_scheme");
    if (!scheme.is_null()) {
      ASSIGN_OR_RETURN(const std::string name, scheme.String());
      if (name != "always" && name != "first" && name != "never") {
        return scheme.Error("\"" + name + "\" is not supported");
      }
      step->keeps_first = name == "never";
    }
    ASSIGN_OR_RETURN(const bool prefix_space, spec.Member("add_prefix_space").BoolOr(true));
    if (!prefix_space) step->keeps_first = true;
    return absl::OkStatus();
  }

  void Add(Step step) {
    (decoder->byte_fallback_ ? decoder->behind_ : decoder->before_).push_back(std::move(step));
  }
};

absl::StatusOr<Decoder> Decoder::FromJson(const JsonRef& spec) {
  Decoder decoder;
  if (spec.is_null()) {
    Step join;
    join.kind = Kind::kJoin;
    decoder.before_.push_back(std::move(join));
    return decoder;
  }
  Reader reader{.decoder = &decoder};
  RETURN_IF_ERROR(reader.Read(spec, 0));
  return decoder;
}

void Decoder::Apply(const std::vector<Step>& steps, bool is_first, RegexScratch* scratch,
                    std::string* token) {
  for (const Step& step : steps) {
    switch (step.kind) {
      case Kind::kReplace:
      case Kind::kMetaspace: {
        const bool drop = step.kind == Kind::kMetaspace && is_first && !step.keeps_first;
        auto replaced = ReplaceAll(*step.pattern, *token, drop ? "" : step.content, scratch);
        if (replaced.ok()) *token = *std::move(replaced);
        break;
      }
      case Kind::kStrip:
        *token = StripEnds(step.strip, *token);
        break;
      case Kind::kJoin:
        if (!is_first) token->insert(0, " ");
        break;
    }
  }
}

std::optional<uint8_t> Decoder::ByteOf(std::string_view token, bool is_first,
                                       RegexScratch* scratch) const {
  if (!byte_fallback_) return std::nullopt;
  std::string text(token);
  Apply(before_, is_first, scratch, &text);
  if (text.size() != 6 || text.compare(0, 3, "<0x") != 0 || text[5] != '>') return std::nullopt;
  const int high = HexDigit(text[3]);
  const int low = HexDigit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high << 4 | low);
}

std::string Decoder::PieceOf(std::string_view token, bool is_first, RegexScratch* scratch) const {
  std::string text(token);
  Apply(before_, is_first, scratch, &text);
  return PieceOfRun(text, is_first, scratch);
}

std::string Decoder::PieceOfRun(std::string_view run, bool is_first, RegexScratch* scratch) const {
  std::string text(run);
  Apply(behind_, is_first, scratch, &text);
  if (!byte_level_) return text;
  auto bytes = DecodeByteLevel(text);
  return bytes.has_value() ? *std::move(bytes) : text;
}

}  // namespace millrace
