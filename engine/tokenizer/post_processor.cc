#include "engine/tokenizer/post_processor.h"

#include <utility>

#include "engine/tokenizer/vocabulary.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxIds = 1024;

absl::StatusOr<std::vector<int32_t>> ReadIds(const JsonRef& list) {
  RETURN_IF_ERROR(list.CheckArray());
  if (list.value().size() > kMaxIds) return list.Error("too many ids");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.value().size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t id, list.Element(i).IndexBelow(kMaxTokens));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const JsonRef& spec) {
  PostProcessor processor;
  if (spec.is_null()) return processor;
  RETURN_IF_ERROR(processor.Read(spec, 0));
  return processor;
}

absl::Status PostProcessor::Read(const JsonRef& spec, int depth) {
  if (depth > kMaxDepth) return spec.Error("sequences nested too deeply");
  ASSIGN_OR_RETURN(const std::string type, spec.Type());
  if (type == "ByteLevel") return absl::OkStatus();
  if (type == "TemplateProcessing") return ReadTemplate(spec);
  if (type == "BertProcessing" || type == "RobertaProcessing") return ReadBert(spec);
  if (type != "Sequence") {
    return spec.Error("post-processor type \"" + type + "\" is not supported");
  }
  const JsonRef list = spec.Member("processors");
  RETURN_IF_ERROR(list.CheckArray());
  for (size_t i = 0; i < list.value().size(); ++i) {
    RETURN_IF_ERROR(Read(list.Element(i), depth + 1));
  }
  return absl::OkStatus();
}

absl::Status PostProcessor::ReadTemplate(const JsonRef& spec) {
  const JsonRef pieces = spec.Member("single");
  RETURN_IF_ERROR(pieces.CheckArray());
  std::vector<int32_t> before;
  std::vector<int32_t> behind;
  int sequences = 0;
  for (size_t i = 0; i < pieces.value().size(); ++i) {
    const JsonRef piece = pieces.Element(i);
    if (const JsonRef sequence = piece.Member("Sequence"); !sequence.is_null()) {
      ASSIGN_OR_RETURN(const std::string which, sequence.Member("id").String());
      if (which != "A" || ++sequences > 1) return piece.Error("want sequence A once");
      continue;
    }
    const JsonRef token = piece.Member("SpecialToken");
    if (token.is_null()) return piece.Error("want \"Sequence\" or \"SpecialToken\"");
    ASSIGN_OR_RETURN(const std::string name, token.Member("id").String());
    const JsonRef known = spec.Member("special_tokens").Member(name.c_str());
    if (known.is_null()) return token.Error("\"" + name + "\" is not in special_tokens");
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(known.Member("ids")));
    std::vector<int32_t>& side = sequences == 0 ? before : behind;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (sequences == 0) return pieces.Error("want sequence A once");
  return Surround(std::move(before), behind, spec);
}

absl::Status PostProcessor::ReadBert(const JsonRef& spec) {
  std::vector<int32_t> ids;
  for (const char* name : {"cls", "sep"}) {
    const JsonRef pair = spec.Member(name);
    RETURN_IF_ERROR(pair.CheckArray());
    if (pair.value().size() != 2) return pair.Wants("[token, id]");
    ASSIGN_OR_RETURN(const int64_t id, pair.Element(1).IndexBelow(kMaxTokens));
    ids.push_back(static_cast<int32_t>(id));
  }
  return Surround({ids[0]}, {ids[1]}, spec);
}

absl::Status PostProcessor::Surround(std::vector<int32_t> before,
                                     const std::vector<int32_t>& behind, const JsonRef& spec) {
  if (prefix_.size() + before.size() > kMaxIds || suffix_.size() + behind.size() > kMaxIds) {
    return spec.Error("too many ids");
  }
  before.insert(before.end(), prefix_.begin(), prefix_.end());
  prefix_ = std::move(before);
  suffix_.insert(suffix_.end(), behind.begin(), behind.end());
  return absl::OkStatus();
}

}  // namespace millrace
