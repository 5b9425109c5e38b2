#include "engine/config/module_patterns.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

const std::string kUp = "model.layers.1.mlp.up_proj";

TEST(ModulePatterns, RegexesMatchFromTheBegin) {
  const auto matches = [](std::string pattern, const std::string& module = kUp) {
    const ModulePatterns patterns = {PatternSyntax::kRegex, {"lm_head", std::move(pattern)}};
    EXPECT_TRUE(CheckPatterns(patterns).ok());
    return MatchesModule(patterns, module);
  };
  EXPECT_TRUE(matches("x", "lm_head"));
  EXPECT_FALSE(matches("x", "model.lm_head"));
  EXPECT_TRUE(matches(kUp));
  EXPECT_FALSE(matches("mlp.up_proj")) << "a name is the whole name";
  EXPECT_TRUE(matches("re:.*up_proj"));
  EXPECT_TRUE(matches("re:model\\.layers\\.(0|1)\\.")) << "not to the end";
  EXPECT_FALSE(matches("re:layers")) << "from the begin";
  EXPECT_FALSE(matches("re:.*mlp$"));
  EXPECT_FALSE(matches("re:(a+)+$", std::string(64, 'a') + "b")) << "gives up";
}

TEST(ModulePatterns, GlobsAndParts) {
  const auto matches = [](std::string pattern) {
    return MatchesModule({PatternSyntax::kGlob, {std::move(pattern)}}, kUp);
  };
  EXPECT_TRUE(matches("model.layers.1*"));
  EXPECT_TRUE(matches("*.mlp.*"));
  EXPECT_TRUE(matches("*.layers.[01].mlp.up_?roj"));
  EXPECT_FALSE(matches("*.layers.[23].*"));
  EXPECT_FALSE(matches("layers.1*")) << "a glob is of the whole name";
  EXPECT_TRUE(matches("mlp"));
  EXPECT_TRUE(matches("layers.1.mlp"));
  EXPECT_FALSE(matches("up"));
  EXPECT_FALSE(matches("re:.*"));
  EXPECT_FALSE(matches(""));
}

TEST(ModulePatterns, RefusesBrokenRegexes) {
  const ModulePatterns broken = {PatternSyntax::kRegex, {"lm_head", "re:.*(up"}};
  EXPECT_EQ(CheckPatterns(broken).message(),
            "'re:.*(up' is no regular expression: missing closing parenthesis at 5");
  EXPECT_TRUE(CheckPatterns({PatternSyntax::kGlob, {"re:.*(up"}}).ok());
}

}  // namespace
}  // namespace millrace
