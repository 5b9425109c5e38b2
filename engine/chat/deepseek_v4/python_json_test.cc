#include "engine/chat/deepseek_v4/python_json.h"

#include <gtest/gtest.h>

#include <utility>

namespace millrace::deepseek_v4 {
namespace {

// Read and written again.
std::string Again(const std::string& text) {
  const auto json = PythonJson::Parse(text);
  return json.ok() ? json->Dump() : std::string(json.status().message());
}

TEST(PythonJson, PrintsAsPythonDoes) {
  // What json.dumps(json.loads(text), ensure_ascii=False) gives in Python 3.11.
  const std::pair<const char*, const char*> kCases[] = {
      {"null", "null"},
      {" [ true ,false\t,\r\n{ } , [ ] ] ", "[true, false, {}, []]"},
      {R"({"b":1,"a":{"z z":[]}})", R"({"b": 1, "a": {"z z": []}})"},
      {"0", "0"},
      {"-0", "0"},
      {"-0.0", "-0.0"},
      {"123456789012345678901234567890", "123456789012345678901234567890"},
      {"-18446744073709551616", "-18446744073709551616"},
      {"1.0", "1.0"},
      {"1e5", "100000.0"},
      {"1E+22", "1e+22"},
      {"1e16", "1e+16"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"1234567890123456.7", "1234567890123456.8"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"1e-07", "1e-07"},
      {"-2.50", "-2.5"},
      {"0.1", "0.1"},
      {"5e-324", "5e-324"},
      {"1e-400", "0.0"},
      {"1e400", "Infinity"},
      {"-1e400", "-Infinity"},
      {"[NaN, Infinity, -Infinity]", "[NaN, Infinity, -Infinity]"},
      {R"("\"\\\/\b\f\n\r\t\u0001\u007f")", "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7f\""},
      {R"("\u6c34 \ud83d\uDE42 水")", "\"水 🙂 水\""},
      {R"({"a": 1, "b": 2, "a": 3})", R"({"a": 3, "b": 2})"},
      {R"({"": {"": ""}})", R"({"": {"": ""}})"},
  };
  for (const auto& [text, want] : kCases) EXPECT_EQ(Again(text), want) << text;
}

TEST(PythonJson, RefusesWhatPythonRefuses) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "not JSON at byte 0: want a value"},
      {"not json", "not JSON at byte 0: want a value"},
      {"[1, 2]x", "not JSON at byte 6: more text behind the value"},
      {"[1,]", "not JSON at byte 3: want a value"},
      {"[1 2]", "not JSON at byte 3: want , or ] in an array"},
      {R"({"a" 1})", "not JSON at byte 5: want : behind a key"},
      {R"({"a": 1,})", "not JSON at byte 8: want a key in quotes"},
      {R"({"a": 1 "b": 2})", "not JSON at byte 8: want , or } in an object"},
      {"{1: 2}", "not JSON at byte 1: want a key in quotes"},
      {"01", "not JSON at byte 2: a number that begins with 0"},
      {"1.", "not JSON at byte 2: want a digit behind the point"},
      {"1e+", "not JSON at byte 3: want a digit in the exponent"},
      {"-", "not JSON at byte 1: want a value"},
      {"+1", "not JSON at byte 0: want a value"},
      {"\"a", "not JSON at byte 2: a string without an end"},
      {"\"a\nb\"", "not JSON at byte 2: a control character in a string"},
      {R"("\x")", "not JSON at byte 2: an unknown escape"},
      {"\"\\", "not JSON at byte 2: an unknown escape"},
      {R"("\u12g4")", "not JSON at byte 5: want four hex digits behind \\u"},
      {"\xEF\xBB\xBFnull", "not JSON at byte 0: want a value"},
      {"nul", "not JSON at byte 0: want a value"},
      {"\"\xC3(\"", "not JSON at byte 1: bytes that are not UTF-8"},
  };
  for (const auto& [text, want] : kCases) EXPECT_EQ(Again(text), want) << text;
}

TEST(PythonJson, RefusesWhatNoPromptCanHold) {
  for (const char* half : {R"("\ud83d")", R"("\ude42")", R"("\ud83d\u0041")", R"("\ud83dx")"}) {
    EXPECT_NE(Again(half).find("half a surrogate pair"), std::string::npos) << half;
  }
  EXPECT_EQ(Again(std::string(4300, '1')), std::string(4300, '1'));
  EXPECT_NE(Again(std::string(4301, '1')).find("too many digits"), std::string::npos);
  EXPECT_EQ(Again(std::string(500, '[') + std::string(500, ']')).size(), 1000u);
  EXPECT_NE(Again(std::string(100'000, '[')).find("more than 500 levels"), std::string::npos);
}

TEST(PythonJson, IsTruthyAsPythonSaysAndFindsMembers) {
  for (const char* no : {"null", "false", "0", "-0", "0.0", "-0.0", "\"\"", "[]", "{}"}) {
    EXPECT_FALSE(PythonJson::Parse(no)->IsTruthy()) << no;
  }
  for (const char* yes : {"true", "1", "NaN", "0.1", "\" \"", "[null]", "{\"a\": 0}"}) {
    EXPECT_TRUE(PythonJson::Parse(yes)->IsTruthy()) << yes;
  }
  const auto json = PythonJson::Parse(R"({"a": 1, "b": null})");
  EXPECT_EQ(json->Find("a")->text, "1");
  EXPECT_TRUE(json->Find("b")->is_null());
  EXPECT_EQ(json->Find("c"), nullptr);
  EXPECT_EQ(json->Find("a")->Find("a"), nullptr);
}

}  // namespace
}  // namespace millrace::deepseek_v4
