// Reads tokenizer.json into a Tokenizer.
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/decoder.h"
#include "engine/tokenizer/json_reader.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_parts.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;

using ShownTokens = std::vector<DecodeTable::Token>;

// By id, the tokens as the decoder sees them: added tokens as they are matched.
ShownTokens CollectTokens(const Vocabulary& vocabulary, const AddedTokens& added) {
  ShownTokens shown(static_cast<size_t>(vocabulary.size()));
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.Contains(id)) shown[static_cast<size_t>(id)].text = vocabulary.Token(id);
  }
  for (const AddedToken& token : added.tokens()) {
    const auto index = static_cast<size_t>(token.id);
    if (index >= shown.size()) shown.resize(index + 1);
    shown[index] = {token.matched, token.special};
  }
  return shown;
}

absl::Status CheckIds(const PostProcessor& processor, const ShownTokens& shown,
                      const JsonRef& spec) {
  for (const auto* ids : {&processor.prefix(), &processor.suffix()}) {
    for (const int32_t id : *ids) {
      const auto index = static_cast<size_t>(id);
      if (index >= shown.size() || shown[index].text.data() == nullptr) {
        return spec.Error(absl::StrCat("no token has id ", id));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> Parse(std::string_view text) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON: ", e.what()));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  if (size < 0) return absl::NotFoundError("cannot read tokenizer file " + path);
  if (static_cast<uint64_t>(size) > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer file ", path, " has ", size, " bytes, at most ", kMaxFileBytes));
  }
  std::string json(static_cast<size_t>(size), '\0');
  file.seekg(0);
  file.read(json.data(), size);
  if (!file) return absl::NotFoundError("cannot read tokenizer file " + path);
  auto tokenizer = FromJson(json);
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(tokenizer.status().code(),
                      absl::StrCat("tokenizer file ", path, ": ", tokenizer.status().message()));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view json) {
  ASSIGN_OR_RETURN(const Json document, Parse(json));
  const JsonRef root(document, "");
  RETURN_IF_ERROR(root.CheckObject());
  auto parts = std::make_unique<Parts>();
  ASSIGN_OR_RETURN(parts->normalizer, Normalizer::FromJson(root.Member("normalizer")));
  ASSIGN_OR_RETURN(parts->pre_tokenizer, PreTokenizer::FromJson(root.Member("pre_tokenizer")));
  const bool byte_level = parts->pre_tokenizer.byte_level();
  ASSIGN_OR_RETURN(parts->model, BpeModel::FromJson(root.Member("model"), byte_level));
  const Vocabulary& vocabulary = parts->model.vocabulary();
  ASSIGN_OR_RETURN(parts->added, AddedTokens::FromJson(root.Member("added_tokens"), vocabulary,
                                                       parts->normalizer));
  for (const AddedToken& token : parts->added.tokens()) {
    if (vocabulary.Contains(token.id)) continue;
    RETURN_IF_ERROR(parts->added_vocabulary.Add(token.content, token.id));
  }
  const JsonRef post_processor = root.Member("post_processor");
  ASSIGN_OR_RETURN(parts->post_processor, PostProcessor::FromJson(post_processor));
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::FromJson(root.Member("decoder")));
  const ShownTokens shown = CollectTokens(vocabulary, parts->added);
  RETURN_IF_ERROR(CheckIds(parts->post_processor, shown, post_processor));
  parts->decode_table =
      DecodeTable(std::move(decoder), static_cast<int32_t>(shown.size()),
                  [&shown](int32_t id) { return shown[static_cast<size_t>(id)]; });
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(parts)));
}

}  // namespace millrace
