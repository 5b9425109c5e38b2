#include "engine/weights/safetensors_file.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/weights/safetensors_header.h"
#include "engine/weights/safetensors_writer.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

absl::StatusOr<std::vector<TensorInfo>> Parse(const std::string& bytes) {
  return ParseSafetensors(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
}

TEST(Safetensors, ReadsWhatWasWritten) {
  const std::string bytes =
      SafetensorsWriter()
          .AddF32("b", {2, 3}, {1, 2, 3, 4, 5, 6})
          .Add("a", FileDType::kBF16, {3}, std::string("\x80\x3f\0\x40\x40\x40", 6))
          .Add("scalar", FileDType::kI64, {}, std::string(8, '\7'))
          .Add("empty", FileDType::kF16, {0, 9}, "")
          .Add("half", FileDType::kF4, {4}, "\1\2")
          .Bytes();
  const auto tensors = Parse(bytes);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 5u);
  const TensorInfo& first = (*tensors)[0];
  EXPECT_EQ(first.name, "b");
  EXPECT_EQ(first.dtype, FileDType::kF32);
  EXPECT_EQ(first.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(first.num_elements(), 6);
  float values[6];
  ASSERT_EQ(first.data.size(), sizeof(values));
  std::memcpy(values, first.data.data(), sizeof(values));
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[5], 6.0f);
  EXPECT_EQ((*tensors)[1].name, "a");
  EXPECT_EQ((*tensors)[1].data.size(), 6u);
  EXPECT_EQ((*tensors)[2].num_elements(), 1);
  EXPECT_EQ((*tensors)[3].num_elements(), 0);
  EXPECT_EQ((*tensors)[4].data.size(), 2u);
}

TEST(Safetensors, NoTensorsAtAll) {
  EXPECT_TRUE(Parse(SafetensorsBytes("{}", "")).ok());
  EXPECT_TRUE(Parse(SafetensorsBytes("{\"__metadata__\":{}}   \n", "")).ok());
}

TEST(Safetensors, EveryDTypeOfTheFormat) {
  const struct {
    const char* name;
    int64_t bits;
  } kTypes[] = {{"F64", 64},    {"F32", 32}, {"F16", 16}, {"BF16", 16},   {"I64", 64},
                {"I32", 32},    {"I16", 16}, {"I8", 8},   {"U64", 64},    {"U32", 32},
                {"U16", 16},    {"U8", 8},   {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8},
                {"F8_E8M0", 8}, {"F4", 4}};
  for (const auto& type : kTypes) {
    const int64_t bytes = type.bits * 6 / 8;
    const std::string header = absl::StrCat(R"({"t":{"dtype":")", type.name,
                                            R"(","shape":[2,3],"data_offsets":[0,)", bytes, "]}}");
    const auto tensors = Parse(SafetensorsBytes(header, std::string(bytes, 'x')));
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_EQ(std::string(FileDTypeName((*tensors)[0].dtype)), type.name);
    EXPECT_EQ(FileDTypeBits((*tensors)[0].dtype), type.bits);
  }
}

struct Refusal {
  const char* header;
  size_t data_bytes;
  const char* reason;  // part of the message
};

// Each breaks one rule of the format.
const Refusal kRefusals[] = {
    {"", 0, "does not start with '{'"},
    {" {}", 0, "does not start with '{'"},
    {"\xef\xbb\xbf{}", 0, "does not start with '{'"},
    {"[]", 0, "does not start with '{'"},
    {"{", 0, "not valid JSON"},
    {"{}x", 0, "not valid JSON"},
    {"{} {}", 0, "not valid JSON"},
    {"{\"t\":1,}", 0, "tensor 't' is 1, want an object"},
    {"{\"\xff\":{}}", 0, "not valid JSON"},
    {"{\"\xc0\xaf\":{}}", 0, "not valid JSON"},
    {R"({"t":null})", 0, "tensor 't' is null"},
    {R"({"t":[]})", 0, "tensor 't' is a list"},
    {R"({"t":{}})", 0, "tensor 't': no"},
    {R"({"t":{"shape":[1],"data_offsets":[0,1]}})", 1, "no dtype"},
    {R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", 1, "no shape"},
    {R"({"t":{"dtype":"U8","shape":[1]}})", 1, "no data_offsets"},
    {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, "unknown key 'x'"},
    {R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "'dtype' twice"},
    {R"({"t":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1, "'shape' twice"},
    {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"data_offsets":[0,1]}})", 1,
     "'data_offsets' twice"},
    {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
         "t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
     1, "key 't' twice"},
    {R"({"__metadata__":{},"__metadata__":{}})", 0, "key '__metadata__' twice"},
    {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "key 'a' twice"},
    {R"({"__metadata__":{"a":1}})", 0, "__metadata__ holds 1"},
    {R"({"__metadata__":{"a":{"b":"c"}}})", 0, "__metadata__ holds an object"},
    {R"({"__metadata__":[]})", 0, "__metadata__ is a list"},
    {R"({"t":{"dtype":"F99","shape":[1],"data_offsets":[0,1]}})", 1, "unknown dtype 'F99'"},
    {R"({"t":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype holds 8"},
    {R"({"t":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, "shape holds 1"},
    {R"({"t":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "shape holds -1"},
    {R"({"t":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "the number 1.0"},
    {R"({"t":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1, "shape holds a string"},
    {R"({"t":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1, "shape holds a list"},
    {R"({"t":{"dtype":"U8","shape":{},"data_offsets":[0,1]}})", 1, "shape holds an object"},
    {R"({"t":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1, "too large"},
    {R"({"t":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}})", 1,
     "the number 99999999999999999999"},
    {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "data_offsets holds a list of 1"},
    {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, "more than two numbers"},
    {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,-1]}})", 1, "data_offsets holds -1"},
    {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":"01"}})", 1, "data_offsets holds a string"},
    {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "run backwards"},
    // 4194305 * 4194305 * 211106198978564 is 4 in 64 bits.
    {R"({"t":{"dtype":"U8","shape":[4194305,4194305,211106198978564],"data_offsets":[0,4]}})", 4,
     "overflows"},
    {R"({"t":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "overflows"},
    {R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, "does not end on a byte"},
    {R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
     "takes 8 bytes, data_offsets give 4"},
    {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8,
     "takes 4 bytes, data_offsets give 8"},
    {R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, "leaving a hole after 0"},
    {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
         "b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
     5, "tensor 'b': data starts at 3, leaving a hole after 2"},
    {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
         "b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
     4, "tensor 'b': data starts at 2, inside the tensor that ends at 3"},
    {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
         "b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
     3, "inside the tensor that ends at 3"},
    {R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3, "cut short"},
    {R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5, "tensors end at 4, but 5"},
    {"{}", 1, "tensors end at 0, but 1"},
};

TEST(Safetensors, EveryRuleIsEnforced) {
  for (const Refusal& refusal : kRefusals) {
    const auto tensors =
        Parse(SafetensorsBytes(refusal.header, std::string(refusal.data_bytes, '\0')));
    ASSERT_FALSE(tensors.ok()) << refusal.header;
    EXPECT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(tensors.status().message());
    EXPECT_NE(message.find(refusal.reason), std::string::npos)
        << "'" << refusal.reason << "' not in: " << message;
  }
}

TEST(Safetensors, HeaderLength) {
  const auto refuses = [](const std::string& bytes, const char* reason) {
    const absl::Status status = Parse(bytes).status();
    EXPECT_NE(std::string(status.message()).find(reason), std::string::npos) << status;
  };
  refuses("", "0 bytes");
  refuses(std::string(7, '\0'), "7 bytes");
  refuses(std::string(8, '\0'), "does not start");
  refuses(std::string(8, '\xff') + "{}", "header length 18446744073709551615, limit 100000000");
  refuses(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8) + "{}", "100000001, limit 100000000");
  refuses(std::string("\3\0\0\0\0\0\0\0", 8) + "{}", "only 2 bytes follow");
  EXPECT_TRUE(Parse(std::string("\2\0\0\0\0\0\0\0", 8) + "{}").ok());
}

TEST(Safetensors, DeepNestingEndsAtOnce) {
  EXPECT_FALSE(Parse(SafetensorsBytes("{\"t\":" + std::string(5'000'000, '['), "")).ok());
  EXPECT_FALSE(Parse(SafetensorsBytes(R"({"t":{"shape":)" + std::string(5'000'000, '['), "")).ok());
}

TEST(Safetensors, MessagesStayReadable) {
  const std::string name = std::string(100'000, 'n');
  const absl::Status longer = Parse(SafetensorsBytes("{\"" + name + "\":1}", "")).status();
  EXPECT_LT(longer.message().size(), 300u);
  const absl::Status control = Parse(SafetensorsBytes(R"({"a\u001b[2J":1})", "")).status();
  EXPECT_EQ(std::string(control.message()).find('\x1b'), std::string::npos) << control;
}

TEST(Safetensors, OpenNamesTheFile) {
  const std::string path = ::testing::TempDir() + "/x.safetensors";
  EXPECT_EQ(SafetensorsFile::Open(path + ".none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(::testing::TempDir()).status().code(),
            absl::StatusCode::kInvalidArgument);
  WriteTestFile(path, "");
  const absl::Status empty = SafetensorsFile::Open(path).status();
  EXPECT_EQ(std::string(empty.message()).rfind(path + ": ", 0), 0u) << empty;

  const std::string bytes = SafetensorsWriter().AddF32("t", {2}, {1, 2}).Bytes();
  WriteTestFile(path, bytes);
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->file_bytes(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ((*file)->header().size(), bytes.size() - 8);
  EXPECT_EQ((*file)->tensors().size(), 1u);
}

// Whatever the bytes, parsing ends in a status, and accepted tensors lie inside the file.
TEST(Safetensors, RandomDamageNeverCrashes) {
  const std::string good = SafetensorsWriter()
                               .AddF32("a.weight", {2, 3}, {1, 2, 3, 4, 5, 6})
                               .Add("b", FileDType::kBF16, {3}, "abcdef")
                               .Add("c", FileDType::kI8, {0}, "")
                               .Bytes();
  std::mt19937_64 random(20261129);
  int accepted = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::string bytes = good;
    const uint64_t flips = random() % 4;
    for (uint64_t i = 0; i < flips; ++i) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    // Prefer characters that keep the JSON alive.
    if (random() % 2 == 0) bytes[random() % bytes.size()] = "0123456789{}[]\",:-"[random() % 18];
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    bytes.shrink_to_fit();  // the sanitizer sees reads past the end
    const auto tensors = Parse(bytes);
    if (!tensors.ok()) {
      ASSERT_FALSE(tensors.status().message().empty());
      continue;
    }
    ++accepted;
    for (const TensorInfo& tensor : *tensors) {
      const auto* begin = reinterpret_cast<const char*>(tensor.data.data());
      ASSERT_GE(begin, bytes.data());
      ASSERT_LE(begin + tensor.data.size(), bytes.data() + bytes.size());
    }
  }
  EXPECT_GT(accepted, 1000);  // flips in data or names are no fault
}

}  // namespace
}  // namespace millrace
