#include "engine/chat/deepseek_v4/dsml.h"

#include <gtest/gtest.h>

namespace millrace::deepseek_v4 {
namespace {

// "name=value" for text, "name:value" for JSON.
std::string Shown(const DsmlParameter& p) { return p.name + (p.is_text ? "=" : ":") + p.value; }

std::string Parameters(const std::string& arguments) {
  const auto parameters = ParametersOf(arguments);
  if (!parameters.ok()) return parameters.status().ToString();
  std::string shown;
  for (const DsmlParameter& p : *parameters) shown += Shown(p) + "|";
  return shown;
}

TEST(Dsml, ArgumentsBecomeParameters) {
  EXPECT_EQ(Parameters(R"({"b": "x\n\"", "a": 1e22, "c": {"k":[1,"2"]}, "d": "7"})"),
            "b=x\n\"|a:1e+22|c:{\"k\": [1, \"2\"]}|d=7|");
  EXPECT_EQ(Parameters("{}"), "");
  EXPECT_EQ(Parameters("not json"), "arguments=not json|");
  EXPECT_EQ(Parameters("[1, 2]x"), "arguments=[1, 2]x|");
  EXPECT_EQ(Parameters(""), "arguments=|");
  for (const char* no_object : {"[1, 2]", "5", "null", "\"a\""}) {
    EXPECT_EQ(Parameters(no_object), "INVALID_ARGUMENT: the arguments are JSON, but not an object");
  }
}

TEST(Dsml, ParametersBecomeArguments) {
  EXPECT_EQ(ArgumentsOf({}), "{}");
  const std::vector<DsmlParameter> parameters = {
      {"a\"", "x\ny", true}, {"b", " [1,2 ", false}, {"", "", true}};
  EXPECT_EQ(ArgumentsOf(parameters), R"({"a\"": "x\ny", "b":  [1,2 , "": ""})");
}

TEST(Dsml, ReadsTheNameOfACall) {
  const auto name = [](std::string_view text) { return ReadInvokeName(text).value_or("(none)"); };
  EXPECT_EQ(name(" name=\"f\">\n"), "f");
  EXPECT_EQ(name(" name=\"f\">\n\n"), "f");
  EXPECT_EQ(name("name=\"f\">\n"), "f");
  EXPECT_EQ(name(" \n\u3000\x1C name=\"\">\n"), "");
  EXPECT_EQ(name(" name=\"f\">\n\">\n"), "f\">\n");
  EXPECT_EQ(name(" name=\"f\"\n"), "(none)");
  EXPECT_EQ(name(" name=\"f\">"), "(none)");
  EXPECT_EQ(name(" name=\"f\">\n\n\n"), "(none)");
  EXPECT_EQ(name(" name=\">\n"), "(none)");
  EXPECT_EQ(name("x name=\"f\">\n"), "(none)");
  EXPECT_EQ(name(" "), "(none)");
  EXPECT_EQ(name(""), "(none)");
}

TEST(Dsml, ReadsAParameter) {
  const auto parameter = [](std::string_view text) {
    const auto read = ReadParameter(text);
    return read.has_value() ? Shown(*read) : "(none)";
  };
  EXPECT_EQ(parameter(" name=\"a\" string=\"true\">x<"), "a=x");
  EXPECT_EQ(parameter(" name=\"a\" string=\"false\">1<"), "a:1");
  EXPECT_EQ(parameter(" name=\"\" string=\"true\"><"), "=");
  EXPECT_EQ(parameter(" name=\"a\" string=\"true\">x<\n"), "a=x");
  EXPECT_EQ(parameter(" name=\"a\" string=\"true\">x<<"), "a=x<");
  EXPECT_EQ(parameter(" name=\"a\" string=\"false\">\" string=\"true\"><"),
            "a:\" string=\"true\">");
  EXPECT_EQ(parameter(" name=\"a\" string=\"maybe\">\" string=\"true\">x<"),
            "a\" string=\"maybe\">=x");
  EXPECT_EQ(parameter("  name=\"a\" string=\"true\">x<"), "(none)");
  EXPECT_EQ(parameter(" name=\"a\" string=\"true\">x"), "(none)");
  EXPECT_EQ(parameter(" name=\"a\" string=\"true\""), "(none)");
  EXPECT_EQ(parameter(" name=\"a\"  string=\"true\">x<"), "(none)");
  EXPECT_EQ(parameter(""), "(none)");
}

}  // namespace
}  // namespace millrace::deepseek_v4
