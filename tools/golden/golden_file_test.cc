#include "tools/golden/golden_file.h"

#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr char kGood[] = R"([{"prompt": [1, 2], "positions": [1], "logits": [[0.5, -1]],
  "greedy": [3], "greedy_top2": [[2.5, 2]], "ids": [7, 9], "text": "<u>hi",
  "messages": [{"role": "user", "content": "hi"}], "answer": "ho"}])";

TEST(GoldenFileTest, ReadsEveryField) {
  const auto cases = ParseGolden(kGood, "g");
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 1u);
  const GoldenCase& c = (*cases)[0];
  EXPECT_EQ(c.prompt, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(c.positions, (std::vector<int32_t>{1}));
  EXPECT_EQ(c.logits[0], (std::vector<float>{0.5f, -1}));
  EXPECT_EQ(c.greedy_top2[0][1], 2);
  EXPECT_EQ(c.ids, (std::vector<int32_t>{7, 9}));
  EXPECT_EQ(c.messages[0].second, "hi");
  EXPECT_EQ(c.text, "<u>hi");
  EXPECT_EQ(c.answer, "ho");
}

struct Broken {
  const char* from;
  const char* to;
  const char* reason;
};

TEST(GoldenFileTest, RefusesWhatDoesNotFitTogether) {
  for (const Broken& b :
       {Broken{"[1, 2]", "[]", "prompt is empty"},
        Broken{"\"greedy\": [3]", "\"greedy\": []", "greedy is empty"},
        Broken{"[[2.5, 2]]", "[]", "greedy_top2"},
        Broken{"\"positions\": [1]", "\"positions\": [2]", "not in prompt"},
        Broken{"\"positions\": [1]", "\"positions\": [0, 1]", "differ in length"},
        Broken{"[7, 9]", "[7]", "ids"}, Broken{"\"prompt\"", "\"prompts\"", "prompt"},
        Broken{"[{", "{", "g: case 0"}}) {
    std::string json = kGood;
    json.replace(json.find(b.from), std::string(b.from).size(), b.to);
    const auto cases = ParseGolden(json, "g");
    ASSERT_FALSE(cases.ok()) << b.reason;
    EXPECT_NE(std::string(cases.status().message()).find(b.reason), std::string::npos)
        << cases.status();
  }
}

TEST(GoldenFileTest, AMissingFileSaysWhatToDo) {
  EXPECT_NE(std::string(ReadGolden("no/such/file").status().message()).find("--golden"),
            std::string::npos);
}

}  // namespace
}  // namespace millrace
