#include "tools/tokenize/encodings_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/tokenizer/detokenizer.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using Ids = std::vector<int32_t>;

// The first difference of two lists of ids with two ids around it.
std::string IdDifference(const Ids& have, const Ids& want) {
  const auto differ = std::mismatch(have.begin(), have.end(), want.begin(), want.end());
  const auto at = static_cast<size_t>(differ.first - have.begin());
  const size_t from = at > 2 ? at - 2 : 0;
  const auto part = [&](const Ids& ids) {
    const size_t end = std::min(ids.size(), at + 4);
    return from < end ? absl::StrJoin(ids.begin() + from, ids.begin() + end, " ") : "(end)";
  };
  return absl::StrCat("id ", at, ": have ", part(have), ", want ", part(want));
}

std::string TextDifference(const std::string& have, const std::string& want) {
  const auto differ = std::mismatch(have.begin(), have.end(), want.begin(), want.end());
  const auto at = static_cast<size_t>(differ.first - have.begin());
  const size_t from = at > 10 ? at - 10 : 0;
  const auto part = [&](const std::string& text) {
    return absl::Utf8SafeCHexEscape(from < text.size() ? text.substr(from, 30) : "");
  };
  return absl::StrCat("byte ", at, ": have \"", part(have), "\", want \"", part(want), "\"");
}

struct WantedIds {
  std::string name;
  const Ids& ids;
};

void CheckEncoding(const Tokenizer& tokenizer, const std::string& text,
                   const EncodeOptions& options, const WantedIds& want,
                   std::vector<std::string>* lines) {
  const auto ids = tokenizer.Encode(text, options);
  if (!ids.ok()) {
    lines->push_back(absl::StrCat(want.name, ids.status().message()));
  } else if (*ids != want.ids) {
    lines->push_back(want.name + IdDifference(*ids, want.ids));
  }
}

std::string DecodedOneByOne(const Tokenizer& tokenizer, const Ids& ids, bool skip, bool* halves) {
  IncrementalDetokenizer detokenizer(tokenizer, skip);
  std::string text;
  const auto add = [&](const std::string& part) {
    *halves = *halves || FindInvalidUtf8(part) != std::string_view::npos;
    text += part;
  };
  for (const int32_t id : ids) add(detokenizer.Push(id));
  add(detokenizer.Finish());
  return text;
}

void CheckDecoding(const Tokenizer& tokenizer, const Ids& ids, const std::string& want, bool skip,
                   std::vector<std::string>* lines) {
  const std::string name = skip ? "decoded" : "decoded_all";
  const std::string whole = tokenizer.Decode(ids, skip);
  if (whole != want) lines->push_back(name + " " + TextDifference(whole, want));
  bool halves = false;
  const std::string rebuilt = DecodedOneByOne(tokenizer, ids, skip, &halves);
  if (rebuilt != want) lines->push_back(name + " one by one " + TextDifference(rebuilt, want));
  if (halves) lines->push_back(name + " one by one gave half a character");
}

}  // namespace

absl::StatusOr<std::vector<RecordedEncoding>> ParseEncodings(std::string_view json) {
  std::vector<RecordedEncoding> encodings;
  try {
    for (const auto& entry : nlohmann::json::parse(json.begin(), json.end())) {
      RecordedEncoding encoding;
      if (const auto& text = entry.at("text"); !text.is_null())
        encoding.text = text.get<std::string>();
      encoding.ids = entry.at("ids").get<Ids>();
      if (encoding.text.has_value()) {
        encoding.ids_with_special = entry.at("ids_with_special").get<Ids>();
      }
      if (entry.contains("ids_plain")) encoding.ids_plain = entry["ids_plain"].get<Ids>();
      encoding.decoded = entry.at("decoded").get<std::string>();
      encoding.decoded_all = entry.at("decoded_all").get<std::string>();
      encodings.push_back(std::move(encoding));
    }
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("encoding ", encodings.size(), ": ", e.what()));
  }
  return encodings;
}

std::vector<std::string> Disagreements(const Tokenizer& tokenizer, const RecordedEncoding& want) {
  std::vector<std::string> lines;
  if (want.text.has_value()) {
    EncodeOptions options;
    CheckEncoding(tokenizer, *want.text, options, {"ids ", want.ids}, &lines);
    options.add_special_tokens = true;
    CheckEncoding(tokenizer, *want.text, options, {"ids_with_special ", want.ids_with_special},
                  &lines);
    options = {.parse_special_tokens = false};
    if (want.ids_plain.has_value()) {
      CheckEncoding(tokenizer, *want.text, options, {"ids_plain ", *want.ids_plain}, &lines);
    }
  }
  CheckDecoding(tokenizer, want.ids, want.decoded, /*skip=*/true, &lines);
  CheckDecoding(tokenizer, want.ids, want.decoded_all, /*skip=*/false, &lines);
  return lines;
}

}  // namespace millrace
