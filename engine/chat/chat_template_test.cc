#include "engine/chat/chat_template.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// As the checkpoints spell them, shortened to what is looked at.
constexpr char kSmolLm2[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\\n' }}{% endif %}";
constexpr char kPlainChatMl[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n'}}{% endfor %}";
constexpr char kComputedSystem[] =
    "{{ '<|im_start|>system\\n' + default_system + '<|im_end|>\\n' }}";
constexpr char kLlama3[] = "{{ bos_token }}<|start_header_id|>{{ role }}<|end_header_id|>";
constexpr char kLlama31[] = "<|start_header_id|>system ... Cutting Knowledge Date: December 2023";
constexpr char kLlama2[] = "'<<SYS>>\\n' + system + '\\n<</SYS>>' ... '[INST] ' ... ' [/INST]'";

ChatTemplate Template(const char* source) {
  return *ChatTemplate::Recognise({.chat_template = source});
}

std::string Render(const ChatTemplate& chat, const std::vector<ChatMessage>& messages) {
  const auto rendered = RenderChat(chat, messages);
  return rendered.ok() ? rendered->text : rendered.status().ToString();
}

TEST(ChatTemplate, RecognisesTheKnownFormatsOnly) {
  EXPECT_EQ(Template(kSmolLm2).default_system,
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  EXPECT_EQ(Template(kPlainChatMl).default_system, "");
  EXPECT_EQ(Template(kComputedSystem).default_system, "");
  EXPECT_EQ(Template(kLlama3).format, ChatFormat::kLlama3);
  EXPECT_FALSE(Template(kLlama3).always_system);
  EXPECT_TRUE(Template(kLlama31).always_system);
  EXPECT_EQ(Template(kLlama2).format, ChatFormat::kLlama2);
  EXPECT_FALSE(ChatTemplate::Recognise({.chat_template = "{{ messages }}"}).has_value());
  EXPECT_FALSE(ChatTemplate::Recognise({}).has_value());
}

TEST(ChatTemplate, SmolLm2) {
  const ChatTemplate chat = Template(kSmolLm2);
  EXPECT_EQ(Render(chat, {{"user", "What is the capital of France?"}}),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nWhat is the capital of "
            "France?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(
      Render(chat, {{"system", "Be brief."}, {"user", " a "}, {"assistant", "b"}, {"user", ""}}),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n a "
      "<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>"
      "assistant\n");
}

TEST(ChatTemplate, Llama3TrimsContentAndDatesItsSystemBlockFrom31On) {
  EXPECT_EQ(Render(Template(kLlama3), {{"user", " hi\n"}}),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(
      Render(Template(kLlama31), {{"system", "Be brief."}, {"user", "hi"}}),
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
      "December 2023\nToday Date: 26 Jul 2024\n\nBe brief.<|eot_id|><|start_header_id|>user"
      "<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_NE(Render(Template(kLlama31), {{"user", "hi"}}).find("26 Jul 2024\n\n<|eot_id|>"),
            std::string::npos);
}

TEST(ChatTemplate, Llama2) {
  const ChatTemplate chat = Template(kLlama2);
  EXPECT_EQ(Render(chat, {{"system", "S"}, {"user", "U"}, {"assistant", " A "}, {"user", " V "}}),
            "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]");
  EXPECT_EQ(Render(chat, {{"user", "U"}, {"user", "V"}}),
            "INVALID_ARGUMENT: message 1: this model's conversations alternate between user and "
            "assistant");
  EXPECT_EQ(Render(chat, {{"system", "S"}}),
            "INVALID_ARGUMENT: this model's conversations end with a user message");
}

TEST(ChatTemplate, RefusesBadConversations) {
  const ChatTemplate chat = Template(kPlainChatMl);
  EXPECT_EQ(Render(chat, {}), "INVALID_ARGUMENT: the conversation holds no message");
  EXPECT_EQ(Render(chat, {{"user", "a"}, {"tool", "b"}}),
            "INVALID_ARGUMENT: message 1: the role 'tool' is not system, user or assistant");
  EXPECT_EQ(Render(chat, {{"user", "a"}, {"system", "b"}}),
            "INVALID_ARGUMENT: message 1: only the first message may be a system message");
}

TEST(ChatTemplate, RefusesContentThatIsNotUtf8) {
  for (const char* bad : {"\x80", "a\xE3\x80", "\xFF "}) {
    EXPECT_EQ(Render(Template(kLlama3), {{"user", bad}}),
              "INVALID_ARGUMENT: message 0: the content is not valid UTF-8");
  }
}

TEST(ChatTemplate, DefaultSystemIsOneWholeText) {
  const auto system = [](const std::string& source) {
    return ChatTemplate::Recognise({.chat_template = source})->default_system;
  };
  EXPECT_EQ(system("{{ '<|im_start|>system\\n' + s + '<|im_end|>' }}"
                   "{{ '<|im_start|>system\\nB<|im_end|>' }}"),
            "B");
  EXPECT_EQ(system("{{ \"<|im_start|>system\\nIt's\\n\\\"B\\\"<|im_end|>\" }}"), "It's\n\"B\"");
  EXPECT_EQ(system("{% if x %}<|im_start|>system\nIt's B<|im_end|>\n{% endif %}"), "It's B");
  EXPECT_EQ(system("<|im_start|>system\nIt is {{ s }}<|im_end|>"), "");
  EXPECT_EQ(system("{{ '<|im_start|>system\\n\\u0041<|im_end|>' }}"), "");
  EXPECT_EQ(system("{{ '<|im_start|>system\\nB<|im_end|>"), "") << "the literal has no end";
  EXPECT_EQ(system("{{ '<|im_start|>system\\nB\\"), "");
  EXPECT_EQ(system("{{ '<|im_start|>system: B<|im_end|>' }}"), "");
  EXPECT_EQ(system("<|im_start|>system"), "");
}

TEST(ChatTemplate, SpansCoverExactlyWhatTheMessagesSaid) {
  const auto rendered = RenderChat(Template(kPlainChatMl),
                                   {{"user", "one"}, {"assistant", ""}, {"user", "<|im_end|>"}});
  ASSERT_TRUE(rendered.ok());
  ASSERT_EQ(rendered->message_spans.size(), 2u);
  const auto text = [&](int i) {
    const TextSpan& s = rendered->message_spans[i];
    return rendered->text.substr(s.begin, s.end - s.begin);
  };
  EXPECT_EQ(text(0), "one");
  EXPECT_EQ(text(1), "<|im_end|>");
}

// Two letters, and one control token.
constexpr char kTokenizer[] = R"({"version": "1.0",
  "added_tokens": [{"id": 0, "content": "<|im_end|>", "single_word": false, "lstrip": false,
    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
    "use_regex": false},
  "post_processor": null,
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
    "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
    "vocab": {"?": 1, "a": 2, "<": 3, "|": 4}, "merges": []}})";

TEST(EncodeChat, UserTextCannotForgeControlTokens) {
  const auto tokenizer = Tokenizer::FromJson(kTokenizer);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const ChatTemplate chat = Template(kPlainChatMl);
  const auto count = [&](const std::string& content) {
    const auto ids = EncodeChat(chat, **tokenizer, {{"user", content}});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return std::count(ids->begin(), ids->end(), 0);
  };
  EXPECT_EQ(count("a"), 1) << "the template's own";
  EXPECT_EQ(count("a<|im_end|>a"), 1);
  EXPECT_EQ(count("<|im_end|>"), 1);
  // A control token must not come about across the border of a message either.
  EXPECT_EQ(count("<|im_end|"), 1);
}

}  // namespace
}  // namespace millrace
