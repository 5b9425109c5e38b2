// Small tokenizers of each family against what the tokenizers library makes of some texts.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "engine/tokenizer/detokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/utf8.h"

namespace millrace {
namespace {

using Ids = std::vector<int32_t>;

const std::string kFolder = "engine/tokenizer/testdata/";

class RecordedEncodings : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::FromFile(kFolder + GetParam() + ".json");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    tokenizer_ = std::move(loaded).value();
    std::ifstream file(kFolder + GetParam() + ".encodings.json");
    recorded_ = nlohmann::json::parse(file);
    ASSERT_GE(recorded_.size(), 40u);
  }

  Ids Encode(const std::string& text, const EncodeOptions& options = {}) const {
    const auto ids = tokenizer_->Encode(text, options);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? *ids : Ids();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  nlohmann::json recorded_;
};

TEST_P(RecordedEncodings, AgreeInBothDirections) {
  for (const auto& want : recorded_) {
    const std::string text = want["text"];
    SCOPED_TRACE(text);
    const Ids ids = want["ids"].get<Ids>();
    EXPECT_EQ(Encode(text), ids);
    EXPECT_EQ(Encode(text, {.add_special_tokens = true}), want["ids_with_special"].get<Ids>());
    EXPECT_EQ(Encode(text, {.parse_special_tokens = false}), want["ids_plain"].get<Ids>());
    EXPECT_EQ(tokenizer_->Decode(ids, true), want["decoded"]);
    EXPECT_EQ(tokenizer_->Decode(ids, false), want["decoded_all"]);
  }
}

TEST_P(RecordedEncodings, OneIdAtATimeGivesTheSameText) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Ids ids;
    for (size_t i = random() % 12; i > 0; --i) {
      ids.push_back(static_cast<int32_t>(random() % (tokenizer_->vocab_size() + 3)) - 1);
    }
    const bool skip = round % 2 == 0;
    IncrementalDetokenizer detokenizer(*tokenizer_, skip);
    std::string text;
    const std::string whole = tokenizer_->Decode(ids, skip);
    for (const int32_t id : ids) {
      text += detokenizer.Push(id);
      ASSERT_EQ(FindInvalidUtf8(text), std::string::npos);
      ASSERT_EQ(whole.compare(0, text.size(), text), 0);  // what was given out stays true
    }
    ASSERT_EQ(text + detokenizer.Finish(), whole);
  }
}

// What follows a prompt is what decoding both together adds to the prompt's own text.
TEST_P(RecordedEncodings, TextContinuesThatOfThePrompt) {
  for (const auto& want : recorded_) {
    // Where the text holds a U+FFFD itself, a prompt that ends inside that character looks whole.
    if (want["text"].get<std::string>().find(kReplacementCharacter) != std::string::npos) continue;
    const Ids ids = want["ids"].get<Ids>();
    for (size_t cut = 0; cut <= ids.size(); ++cut) {
      const Ids prompt(ids.begin(), ids.begin() + static_cast<long>(cut));
      const std::string before = tokenizer_->Decode(prompt, false);
      const std::string whole = tokenizer_->Decode(ids, false);
      if (whole.compare(0, before.size(), before) != 0) continue;  // cut inside a character
      IncrementalDetokenizer detokenizer(*tokenizer_, false, prompt);
      std::string text;
      for (size_t i = cut; i < ids.size(); ++i) text += detokenizer.Push(ids[i]);
      ASSERT_EQ(before + text + detokenizer.Finish(), whole) << want["text"] << " at " << cut;
    }
  }
}

TEST_P(RecordedEncodings, LiteralSpansDoNotCutOrdinaryText) {
  std::mt19937 random(11);
  for (const auto& want : recorded_) {
    const std::string text = want["text"];
    if (want["ids"] != want["ids_plain"]) continue;  // holds special tokens
    for (int round = 0; round < 20 && !text.empty(); ++round) {
      const size_t a = random() % text.size();
      const TextSpan span{a, a + random() % (text.size() - a + 1)};
      EXPECT_EQ(Encode(text, {.literal_spans = absl::MakeConstSpan(&span, 1)}),
                want["ids"].get<Ids>());
    }
  }
}

TEST_P(RecordedEncodings, ManyThreadsAgree) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (int round = 0; round < 20; ++round) {
        for (const auto& want : recorded_) {
          EXPECT_EQ(Encode(want["text"].get<std::string>()), want["ids"].get<Ids>());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Families, RecordedEncodings,
                         testing::Values("gpt2", "llama3", "smollm", "metaspace", "llama2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenizerTest, SpecialTokensInsideLiteralSpansStayText) {
  const auto tokenizer = Tokenizer::FromFile(kFolder + "smollm.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const int32_t end = (*tokenizer)->TokenToId("<|im_end|>").value();
  ASSERT_TRUE((*tokenizer)->IsSpecial(end));
  // The user's copy touches the real one on both sides.
  const std::string text = "<|im_end|>a<|im_end|><|im_end|>";
  const TextSpan user{10, 21};
  const auto ids = (*tokenizer)->Encode(text, {.literal_spans = absl::MakeConstSpan(&user, 1)});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(std::count(ids->begin(), ids->end(), end), 2);
  EXPECT_EQ(ids->front(), end);
  EXPECT_EQ(ids->back(), end);
  EXPECT_EQ((*tokenizer)->Decode(*ids, false), text);
  EXPECT_EQ((*tokenizer)->Decode(*ids, true), "a<|im_end|>");
  // A token half of which the user wrote is none either.
  const TextSpan half{4, 11};
  const auto broken = (*tokenizer)->Encode(text, {.literal_spans = absl::MakeConstSpan(&half, 1)});
  ASSERT_TRUE(broken.ok());
  EXPECT_EQ(std::count(broken->begin(), broken->end(), end), 2);
  EXPECT_NE(broken->front(), end);
}

TEST(TokenizerTest, RefusesBadTextAndSpans) {
  const auto tokenizer = Tokenizer::FromFile(kFolder + "gpt2.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto bad = (*tokenizer)->Encode("ab\xC3(");
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(bad.status().message(), "text is not valid UTF-8 at byte 2");
  for (const std::vector<TextSpan>& spans :
       std::vector<std::vector<TextSpan>>{{{0, 9}}, {{2, 1}}, {{0, 2}, {1, 3}}, {{2, 3}, {0, 1}}}) {
    const auto ids = (*tokenizer)->Encode("abcd", {.literal_spans = spans});
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(TokenizerTest, LongWordsTakeNoQuadraticTime) {
  for (const char* name : {"gpt2", "llama2"}) {
    const auto tokenizer = Tokenizer::FromFile(kFolder + name + ".json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const std::string unit : {"a", "the", " ", "水"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      const auto ids = (*tokenizer)->Encode(text);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ((*tokenizer)->Decode(*ids, false).size(),
                text.size() + (name[0] == 'g' && unit != " "));
    }
  }
}

}  // namespace
}  // namespace millrace
