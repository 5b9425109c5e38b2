// Hostile tokenizer.json: refused with the place and the reason, never a crash.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "engine/tokenizer/tokenizer.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

Json Minimal() {
  return Json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 3, "content": "<s>", "special": true, "normalized": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

std::string ErrorOf(const Json& document) {
  const auto tokenizer = Tokenizer::FromJson(document.dump());
  if (tokenizer.ok()) return "";
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(tokenizer.status().message());
}

TEST(TokenizerReaderTest, ReadsTheMinimum) {
  const auto tokenizer = Tokenizer::FromJson(Minimal().dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->Encode("ab<s>ba"), (std::vector<int32_t>{2, 3, 1, 0}));
  EXPECT_EQ((*tokenizer)->vocab_size(), 4);
  EXPECT_EQ((*tokenizer)->IdToToken(3), "<s>");
  EXPECT_EQ((*tokenizer)->IdToToken(4), "");
  EXPECT_EQ((*tokenizer)->IdToToken(-1), "");
  EXPECT_EQ((*tokenizer)->TokenToId("<s>"), 3);
  EXPECT_EQ((*tokenizer)->TokenToId("c"), std::nullopt);
  EXPECT_EQ((*tokenizer)->Decode({0, 3, 1, 77, -5}, false), "a <s> b");
}

struct Case {
  const char* pointer;  // where the minimal document is changed
  const char* value;
  const char* message;
};
constexpr Case kCases[] = {
    {"/model", "7", "model: want an object, have number"},
    {"/model/type", "\"WordPiece\"", "model type \"WordPiece\" is not supported"},
    {"/model/vocab", "[]", "model.vocab: want an object, have array"},
    {"/model/vocab/a", "1", "already that of"},
    {"/model/vocab/a", "-1", "is not in [0, "},
    {"/model/vocab/a", "4194304", "is not in [0, "},
    {"/model/vocab/a", "18446744073709551615", "is not in [0, "},
    {"/model/vocab/a", "1.5", "want an integer"},
    {"/model/merges", "null", "model.merges: want an array, have null"},
    {"/model/merges/0", "\"a b c\"", "model.merges[0]: want two tokens"},
    {"/model/merges/0", "[\"a\"]", "model.merges[0]: want \"a b\" or"},
    {"/model/merges/0", "[\"a\", 1]", "model.merges[0]: want \"a b\" or"},
    {"/model/merges/0", "\"b a\"", "\"ba\" is not in the vocabulary"},
    {"/model/dropout", "0.1", "dropout is not supported"},
    {"/model/continuing_subword_prefix", "\"##\"", "\"##\" is not supported"},
    {"/model/end_of_word_suffix", "\"</w>\"", "\"</w>\" is not supported"},
    {"/model/unk_token", "\"?\"", "\"?\" is not in the vocabulary"},
    {"/model/byte_fallback", "1", "model.byte_fallback: want true or false"},
    {"/added_tokens", "{}", "added_tokens: want an array"},
    {"/added_tokens/0/id", "2", "id 2 of \"<s>\" is that of \"ab\""},
    {"/added_tokens/0/id", "99999999", "added_tokens[0].id: 99999999 is not in"},
    {"/added_tokens/0/content", "\"a\"", "\"a\" has id 3 here and id 0 in model.vocab"},
    {"/added_tokens/1", R"({"id": 3, "content": "x"})", "id 3 is there twice"},
    {"/added_tokens/1", R"({"id": 4, "content": "<s>"})", "\"<s>\" is there twice"},
    {"/normalizer", R"({"type": "Precompiled"})", "type \"Precompiled\" is not supported"},
    {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "("}, "content": ""})", "\"(\""},
    {"/pre_tokenizer", R"({"type": "Mystery"})", "type \"Mystery\" is not supported"},
    {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "[a&&b]"},
                           "behavior": "Isolated"})",
     "intersection && in a character class"},
    {"/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "x"}, "behavior": "Odd"})",
     "behavior \"Odd\" is not supported"},
    {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"},
                           {"type": "Digits"}]})",
     "behind ByteLevel"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", "want one character"},
    {"/post_processor", R"({"type": "Odd"})", "type \"Odd\" is not supported"},
    {"/post_processor", R"({"type": "TemplateProcessing", "special_tokens": {}, "single":
                            [{"SpecialToken": {"id": "<s>"}}]})",
     "not in special_tokens"},
    {"/post_processor", R"({"type": "BertProcessing", "cls": ["x", 9], "sep": ["x", 0]})",
     "post_processor: no token has id 9"},
    {"/decoder", R"({"type": "WordPiece"})", "type \"WordPiece\" is not supported"},
    {"/decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                     {"type": "ByteFallback"}]})",
     "behind Fuse or ByteLevel"},
    {"/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})", "decoder.start"},
};

TEST(TokenizerReaderTest, RefusesBrokenDocumentsByPlaceAndReason) {
  for (const Case& c : kCases) {
    Json document = Minimal();
    document[Json::json_pointer(c.pointer)] = Json::parse(c.value);
    EXPECT_NE(ErrorOf(document).find(c.message), std::string::npos)
        << c.pointer << " = " << c.value << ": " << ErrorOf(document);
  }
}

TEST(TokenizerReaderTest, RefusesWhatIsNoDocument) {
  for (const char* text : {"", "[", "7", "[]", "{\"model\": {\"vocab\": {\"\\ud800\": 0}}}"}) {
    EXPECT_EQ(Tokenizer::FromJson(text).status().code(), absl::StatusCode::kInvalidArgument);
  }
  Json nested = {{"type", "Lowercase"}};
  for (int i = 0; i < 100; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  Json document = Minimal();
  document["normalizer"] = nested;
  EXPECT_NE(ErrorOf(document).find("nested too deeply"), std::string::npos);
  EXPECT_EQ(Tokenizer::FromJson(std::string(2'000'000, '[')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TokenizerReaderTest, NamesTheFile) {
  const auto missing = Tokenizer::FromFile("/nowhere/tokenizer.json");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("/nowhere/tokenizer.json"), std::string::npos);
  const std::string path = testing::TempDir() + "/broken_tokenizer.json";
  std::ofstream(path) << "{\"model\": {}}";
  const auto broken = Tokenizer::FromFile(path);
  EXPECT_NE(broken.status().message().find(path + ": model.vocab"), std::string::npos)
      << broken.status();
}

// Bytes changed, dropped and doubled, and values swapped for others of the same document.
TEST(TokenizerReaderTest, SurvivesCorruption) {
  std::mt19937 random(3);
  for (const char* name : {"gpt2", "llama3", "smollm", "metaspace", "llama2"}) {
    std::ifstream file(std::string("engine/tokenizer/testdata/") + name + ".json");
    std::stringstream contents;
    contents << file.rdbuf();
    const std::string original = contents.str();
    ASSERT_FALSE(original.empty());
    int loaded = 0;
    for (int round = 0; round < 300; ++round) {
      std::string text = original;
      for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
        // Half of the edits hit the short part before the model, where the structure is.
        const size_t range = random() % 2 == 0 ? std::min<size_t>(text.size(), 1500) : text.size();
        const size_t at = random() % range;
        switch (random() % 4) {
          case 0:
            text[at] = static_cast<char>(random());
            break;
          case 1:
            text.erase(at, random() % 8);
            break;
          case 2:
            text.insert(at, text.substr(random() % text.size(), random() % 20));
            break;
          default:
            text[at] = "0123456789\"{}[],:-eE"[random() % 20];
        }
      }
      const auto tokenizer = Tokenizer::FromJson(text);
      if (!tokenizer.ok()) continue;
      ++loaded;
      const auto ids = (*tokenizer)->Encode("<s>The wheel  grinds\n12 é 水 \xF0\x9F\x98\x80</s>");
      if (ids.ok()) (*tokenizer)->Decode(*ids, round % 2 == 0);
    }
    EXPECT_GT(loaded, 10) << name;  // so that encoding is tried with odd tokenizers too
  }
}

}  // namespace
}  // namespace millrace
