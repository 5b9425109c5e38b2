#include "engine/tokenizer/bpe_model.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/tokenizer/utf8.h"

namespace millrace {
namespace {

using Ids = std::vector<int32_t>;

// Characters a, b, ▁, é; a chain of merges; "<0xNN>" for every byte.
Json Spec() {
  Json vocab = {{"a", 0},  {"b", 1},   {"▁", 2},  {"é", 3},  {"ab", 4},
                {"▁a", 5}, {"▁ab", 6}, {"▁▁", 7}, {"aé", 8}, {"<unk>", 9}};
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">";
    vocab[name] = 10 + byte;
  }
  return {{"type", "BPE"},
          {"vocab", vocab},
          {"unk_token", "<unk>"},
          {"fuse_unk", true},
          {"merges", {"▁ ▁", "▁ a", "a b", "▁ ab", "▁a b", "a é"}},
          {"byte_fallback", true}};
}

BpeModel Load(const Json& spec, bool byte_level = false) {
  auto model = BpeModel::FromJson(JsonRef(spec, "model"), byte_level);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

Ids Encode(const BpeModel& model, std::string_view word) {
  BpeScratch scratch;
  Ids ids;
  model.Encode(word, &scratch, &ids);
  return ids;
}

// The same without cutting and without a cache.
Ids EncodeByDefinition(const BpeModel& model, const Json& spec, std::string_view word) {
  std::vector<std::string> parts;
  for (size_t pos = 0; pos < word.size();) {
    const size_t begin = pos;
    NextCodePoint(word, &pos);
    parts.emplace_back(word.substr(begin, pos - begin));
  }
  const auto& merges = spec["merges"];
  for (bool merged = true; merged;) {
    merged = false;
    for (size_t rank = 0; rank < merges.size() && !merged; ++rank) {
      for (size_t i = 0; i + 1 < parts.size() && !merged; ++i) {
        if (parts[i] + " " + parts[i + 1] != merges[rank]) continue;
        parts[i] += parts[i + 1];
        parts.erase(parts.begin() + static_cast<long>(i) + 1);
        merged = true;
      }
    }
  }
  Ids ids;
  for (const std::string& part : parts) {
    if (const auto id = model.vocabulary().Find(part); id.has_value()) {
      ids.push_back(*id);
    } else {
      for (const char c : part) ids.push_back(10 + static_cast<unsigned char>(c));
    }
  }
  return ids;
}

TEST(BpeModelTest, CuttingLongWordsChangesNothing) {
  const Json spec = Spec();
  const BpeModel model = Load(spec);
  std::mt19937 random(9);
  BpeScratch scratch;
  const char* pieces[] = {"a", "b", "▁", "é", "水", "x"};
  for (int round = 0; round < 3000; ++round) {
    std::string word;
    for (size_t i = random() % 60; i > 0; --i) word += pieces[random() % 6];
    Ids ids;
    model.Encode(word, &scratch, &ids);
    ASSERT_EQ(ids, EncodeByDefinition(model, spec, word)) << word;
  }
}

TEST(BpeModelTest, UnknownCharacters) {
  Json spec = Spec();
  EXPECT_EQ(Encode(Load(spec), "aü"), (Ids{0, 10 + 0xC3, 10 + 0xBC}));
  spec["byte_fallback"] = false;
  EXPECT_EQ(Encode(Load(spec), "aüxb"), (Ids{0, 9, 1}));  // a run becomes one
  spec["fuse_unk"] = false;
  EXPECT_EQ(Encode(Load(spec), "aüxb"), (Ids{0, 9, 9, 1}));
  spec["unk_token"] = nullptr;
  EXPECT_EQ(Encode(Load(spec), "aüxb"), (Ids{4}));  // dropped, and what is left merges
}

TEST(BpeModelTest, WholeWordsWinWhereMergesAreIgnored) {
  Json spec = {{"vocab", {{"a", 0}, {"b", 1}, {"Ġ", 2}, {"ba", 3}, {"Ġba", 4}, {"ab", 5}}},
               {"merges", {"a b"}}};
  EXPECT_EQ(Encode(Load(spec, true), " ba"), (Ids{2, 1, 0}));
  spec["ignore_merges"] = true;
  EXPECT_EQ(Encode(Load(spec, true), " ba"), (Ids{4}));
  EXPECT_EQ(Encode(Load(spec, true), " bab"), (Ids{2, 1, 5}));
  EXPECT_EQ(Encode(Load(spec, true), "xa"), (Ids{0}));  // a byte that has no token is dropped
}

TEST(WordCacheTest, ForgetsInsteadOfGrowing) {
  WordCache cache;
  const auto word = [](int i) { return "word number " + std::to_string(i); };
  size_t known = 0;
  for (int i = 0; i < 300'000; ++i) {
    const int32_t id = i;
    cache.Insert(word(i), WordCache::Hash(word(i)), absl::MakeConstSpan(&id, 1));
    Ids ids;
    ASSERT_TRUE(cache.Find(word(i), WordCache::Hash(word(i)), &ids));
    ASSERT_EQ(ids, Ids{i});
  }
  for (int i = 0; i < 300'000; ++i) {
    Ids ids;
    if (!cache.Find(word(i), WordCache::Hash(word(i)), &ids)) continue;
    ++known;
    ASSERT_EQ(ids, Ids{i});  // never another word's
  }
  EXPECT_GT(known, 0u);
  EXPECT_LE(known, 1u << 15);
}

}  // namespace
}  // namespace millrace
