#include "tools/golden/golden_file.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

absl::Status Check(const GoldenCase& c) {
  const auto bad = [](const char* what) { return absl::InvalidArgumentError(what); };
  if (c.prompt.empty()) return bad("prompt is empty");
  if (c.greedy.empty()) return bad("greedy is empty");
  if (c.logits.size() != c.positions.size()) return bad("logits and positions differ in length");
  if (c.greedy_top2.size() != c.greedy.size())
    return bad("greedy_top2 and greedy differ in length");
  if (!std::is_sorted(c.positions.begin(), c.positions.end()))
    return bad("positions do not ascend");
  for (const int32_t p : c.positions) {
    if (p < 0 || p >= static_cast<int32_t>(c.prompt.size()))
      return bad("a position is not in prompt");
  }
  for (const std::vector<float>& row : c.logits) {
    if (row.empty() || row.size() != c.logits[0].size()) return bad("logits rows differ in length");
    if (!c.ids.empty() && row.size() != c.ids.size()) return bad("logits rows do not match ids");
  }
  if (c.text.has_value() && c.messages.empty()) return bad("text without messages");
  return absl::OkStatus();
}

// Throws nlohmann's exceptions.
GoldenCase FromJson(const Json& j) {
  GoldenCase c;
  j.at("prompt").get_to(c.prompt);
  j.at("positions").get_to(c.positions);
  j.at("logits").get_to(c.logits);
  j.at("greedy").get_to(c.greedy);
  j.at("greedy_top2").get_to(c.greedy_top2);
  if (j.contains("ids")) j["ids"].get_to(c.ids);
  if (j.contains("messages")) {
    for (const Json& message : j["messages"]) {
      c.messages.emplace_back(message.at("role").get<std::string>(),
                              message.at("content").get<std::string>());
    }
  }
  if (j.contains("text")) c.text = j["text"].get<std::string>();
  if (j.contains("answer")) c.answer = j["answer"].get<std::string>();
  return c;
}

}  // namespace

absl::StatusOr<std::vector<GoldenCase>> ParseGolden(const std::string& json,
                                                    const std::string& where) {
  std::vector<GoldenCase> cases;
  try {
    const Json parsed = Json::parse(json);
    if (!parsed.is_array() || parsed.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": want a list of cases"));
    }
    for (const Json& one : parsed) {
      cases.push_back(FromJson(one));
      if (absl::Status status = Check(cases.back()); !status.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, ": case ", cases.size() - 1, ": ", status.message()));
      }
    }
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": case ", cases.size(), ": ", e.what()));
  }
  return cases;
}

absl::StatusOr<std::vector<GoldenCase>> ReadGolden(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::NotFoundError(
        absl::StrCat(path, ": cannot be read; --golden names a file with reference outputs"));
  }
  std::ostringstream text;
  text << in.rdbuf();
  return ParseGolden(text.str(), path);
}

}  // namespace millrace
