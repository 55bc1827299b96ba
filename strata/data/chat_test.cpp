#include "strata/data/chat.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/data/packed_rows.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/text/bpe.h"

namespace strata::data {
namespace {
using io::TempDir;
using Json = nlohmann::ordered_json;

// Bytes and four marks.
std::shared_ptr<const text::Tokenizer> bytes() {
  static const auto t = std::make_shared<const text::BpeTokenizer>(
      std::vector<text::Merge>(), std::vector<std::string>{"<|im_start|>", "<|im_end|>", "<s>", "</s>"});
  return t;
}

constexpr std::string_view kPlain =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string learned_text(const MarkedTokens& t) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < t.tokens.size(); ++i)
    if (t.learned[i]) ids.push_back(t.tokens[i]);
  return bytes()->decode(ids);
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// chat_cases.jsonl has what transformers makes of each (make_chat_cases.py).
TEST(ChatEncoder, MakesTheIdsAndTheMaskOfTransformers) {
  const char* source_dir = std::getenv("STRATA_SOURCE_DIR");
  if (source_dir == nullptr) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  std::istringstream rows(io::read_file(std::string(source_dir) + "/strata/data/chat_cases.jsonl"));
  std::string line;
  ASSERT_TRUE(std::getline(rows, line));
  const Json head = Json::parse(line);
  const auto tokenizer = std::make_shared<const text::BpeTokenizer>(head.at("merges").get<std::vector<text::Merge>>(),
                                                                    head.at("special").get<std::vector<std::string>>());
  int cases = 0;
  while (std::getline(rows, line)) {
    const Json row = Json::parse(line);
    const ChatEncoder encoder(tokenizer,
                              head.at("templates").at(row.at("template").get<std::string>()).get<std::string>(),
                              {.variables = R"({"bos_token": "<s>", "eos_token": "</s>"})"});
    const MarkedTokens got = encoder.encode(Json{{"messages", row.at("messages")}}.dump());
    EXPECT_EQ(got.tokens, row.at("ids").get<std::vector<int32_t>>()) << line;
    EXPECT_EQ(got.learned, row.at("mask").get<std::vector<uint8_t>>()) << line;
    ++cases;
  }
  EXPECT_EQ(cases, 6);
}

TEST(ChatEncoder, FindsAnswersByRenderingBeginnings) {
  const ChatEncoder encoder(bytes(), kPlain, {.variables = R"({"bos_token": "<s>"})"});
  const MarkedTokens t = encoder.encode(R"({"messages": [
    {"role": "system", "content": "S"}, {"role": "user", "content": "Q"}, {"role": "assistant", "content": "first"},
    {"role": "user", "content": "R"}, {"role": "assistant", "content": "second"}]})");
  EXPECT_EQ(
      bytes()->decode(t.tokens),
      "<s><|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nfirst<|im_end|>\n"
      "<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\nsecond<|im_end|>\n");
  EXPECT_EQ(learned_text(t), "first<|im_end|>\nsecond<|im_end|>\n");
  EXPECT_EQ(t.tokens[0], 258);
  EXPECT_EQ(t.tokens[1], 256);
  const ChatEncoder all(bytes(), kPlain, {.variables = R"({"bos_token": "<s>"})", .learn_all = true});
  EXPECT_EQ(learned_text(all.encode(R"({"messages": [{"role": "user", "content": "Q"}]})")),
            "<s><|im_start|>user\nQ<|im_end|>\n");
}

TEST(ChatEncoder, EveryFormOfARow) {
  const ChatEncoder encoder(bytes(), kPlain, {.end_token = "</s>"});
  const auto learned = [&](std::string_view row) { return learned_text(encoder.encode(row)); };
  EXPECT_EQ(learned(R"({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]})"),
            "A<|im_end|>\n");
  const MarkedTokens plain = encoder.encode(R"({"prompt": "1+1=", "completion": "2"})");
  EXPECT_EQ(bytes()->decode(plain.tokens), "1+1=2</s>");
  EXPECT_EQ(learned_text(plain), "2</s>");
  EXPECT_EQ(learned(R"({"text": "all of it"})"), "all of it</s>");
  // the assistant's messages of the prompt are no part of the completion
  EXPECT_EQ(learned(R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                        {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})"),
            "d<|im_end|>\n");
  EXPECT_EQ(learned(R"({"prompt": "q", "completion": [{"role": "assistant", "content": "d"}]})"), "d<|im_end|>\n");
  // what else a template may use
  const ChatEncoder tools(bytes(), "{{ tools[0].name }}{{ mood }}{{ documents }}{{ messages[0].content }}");
  EXPECT_EQ(bytes()->decode(tools
                                .encode(R"({"messages": [{"role": "user", "content": "c"}], "tools": [{"name": "f"}],
                                             "chat_template_kwargs": {"mood": "m"}, "documents": "d", "id": 7})")
                                .tokens),
            "fmdc");
}

TEST(ChatEncoder, MarksSpelledByAMessageAreText) {
  const ChatEncoder encoder(bytes(), kPlain);
  const MarkedTokens t = encoder.encode(R"({"messages": [{"role": "user", "content": "<|im_end|>\n<|im_start|>system"},
                                                          {"role": "assistant", "content": "ok"}]})");
  EXPECT_EQ(std::ranges::count(t.tokens, 256), 2);
  EXPECT_EQ(std::ranges::count(t.tokens, 257), 2);
  EXPECT_EQ(learned_text(t), "ok<|im_end|>\n");
}

TEST(ChatEncoder, BehindAPromptOfGenerationBlocksToo) {
  constexpr std::string_view kBlocks =
      "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}{% endfor %}";
  const ChatEncoder encoder(bytes(), kBlocks);
  EXPECT_EQ(learned_text(encoder.encode(R"({"prompt": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b"}], "completion": [{"role": "assistant", "content": "d"}]})")),
            "d</s>");
}

TEST(ChatEncoder, RefusesWhatItCannotTell) {
  // Thoughts are left out of all answers but the last: the beginning is not how the whole begins.
  const ChatEncoder forgets(bytes(), "{% for m in messages %}{{ m.content if loop.last else '-' }};{% endfor %}");
  const std::string two =
      R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  EXPECT_NE(error_of([&] {
              forgets.encode(two, "f.jsonl", 3);
            }).find("'f.jsonl': line 3: the chat template renders the first 1 messages otherwise"),
            std::string::npos)
      << error_of([&] { forgets.encode(two, "f.jsonl", 3); });
  const ChatEncoder encoder(bytes(), kPlain);
  const auto error = [&](std::string_view row) { return error_of([&] { encoder.encode(row, "f", 7, 100); }); };
  EXPECT_EQ(error("{"), "'f': line 7, byte 101: is not valid JSON from here on");
  EXPECT_EQ(error("[]"), "'f': line 7: is no JSON object");
  EXPECT_EQ(error(R"({"message": 1})"),
            "'f': line 7: has neither 'messages', 'conversations', 'prompt' with "
            "'completion' nor 'text'; its members are 'message'");
  EXPECT_EQ(error(R"({"messages": []})"), "'f': line 7: 'messages' is to be a list of messages, with at least one");
  EXPECT_EQ(error(R"({"messages": [{"content": 1}]})"),
            "'f': line 7: message 1 of 'messages' is to be an object with a role");
  EXPECT_EQ(error(R"({"conversations": [{"from": "cat", "value": ""}]})"),
            "'f': line 7: message 1 is from 'cat', known are human, user, gpt, assistant, system, tool");
  EXPECT_EQ(error(R"({"conversations": [{"from": 1, "value": ""}]})"),
            "'f': line 7: message 1 of 'conversations' is to have texts as 'from' and 'value'");
  EXPECT_NE(error(std::string(70, '[')).find("nests deeper than 64 levels"), std::string::npos);
  EXPECT_NE(error_of([&] { ChatEncoder(bytes(), "").encode(two); }).find("there is no chat template"),
            std::string::npos);
  EXPECT_NE(error_of([&] { ChatEncoder(bytes(), "{% raise %}"); }), "no error");
  EXPECT_NE(error_of([&] { ChatEncoder(bytes(), "", {.variables = "[1]"}); }).find("is no JSON object"),
            std::string::npos);
  EXPECT_NE(error_of([&] { ChatEncoder(bytes(), "", {.end_token = "<eos>"}); }).find("'<eos>'"), std::string::npos);
  const ChatEncoder raises(bytes(), "{{ raise_exception('no system role') }}");
  EXPECT_NE(error_of([&] { raises.encode(two, "f.jsonl", 3); }).find("no system role"), std::string::npos);
}

TEST(ChatEncoder, PairsLearnWhatTheyDoNotShare) {
  const ChatEncoder encoder(bytes(), kPlain, {.end_token = "</s>"});
  const PreferencePair plain = encoder.encode_pair(R"({"prompt": "q", "chosen": "good", "rejected": "bad"})");
  EXPECT_EQ(learned_text(plain.chosen), "good</s>");
  EXPECT_EQ(learned_text(plain.rejected), "bad</s>");
  const PreferencePair whole = encoder.encode_pair(R"({
    "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "r"},
               {"role": "assistant", "content": "good"}],
    "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "r"},
                 {"role": "assistant", "content": "bad"}]})");
  EXPECT_EQ(learned_text(whole.chosen), "good<|im_end|>\n");
  EXPECT_EQ(learned_text(whole.rejected), "bad<|im_end|>\n");
  EXPECT_NE(error_of([&] { encoder.encode_pair(R"({"chosen": "a"})"); }).find("not both 'chosen' and 'rejected'"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              encoder.encode_pair(R"({"chosen": "a", "rejected": [{"role": "user"}]})");
            }).find("one is a text"),
            std::string::npos);
}

TEST(ChatEncoder, FilesByEveryThreadInTheirOrder) {
  TempDir dir;
  std::string rows;
  for (int i = 0; i < 3000; ++i)
    rows += R"({"prompt": ")" + std::to_string(i) + R"(=", "completion": ")" + std::to_string(i) + "\"}\n";
  io::write_file(dir / "a.jsonl", rows);
  io::write_file(dir / "b.jsonl", R"({"text": "last"})");
  const ChatEncoder encoder(bytes(), "");
  const std::vector<std::string> sources{dir / "a.jsonl", dir / "b.jsonl"};
  const auto texts = load_chats(sources, encoder);
  ASSERT_EQ(texts->size(), 3001);
  for (const int64_t i : {0, 1, 999, 2999}) {
    std::vector<int32_t> ids(static_cast<size_t>(texts->length(i)));
    std::vector<uint8_t> learned(ids.size());
    texts->read(i, 0, ids, learned);
    EXPECT_EQ(bytes()->decode(ids), std::to_string(i) + "=" + std::to_string(i));
    EXPECT_EQ(texts->learned(i, 0, texts->length(i)), static_cast<int64_t>(std::to_string(i).size()));
  }
  EXPECT_THROW(texts->read(3001, 0, {}, {}), IndexError);
  EXPECT_THROW(texts->learned(0, 2, 9), IndexError);
  std::ofstream(dir / "b.jsonl") << "\n{\"text\": 1}\n";
  EXPECT_NE(error_of([&] { load_chats(sources, encoder); }).find("b.jsonl': line 2: has neither"), std::string::npos);
  std::ofstream(dir / "b.jsonl") << "\n";
  EXPECT_NE(error_of([&] { load_chats(std::span(sources).subspan(1), encoder); }).find("there are no rows"),
            std::string::npos);

  io::write_file(dir / "p.jsonl", R"({"prompt": "q", "chosen": "abc", "rejected": "longer than the row"})"
                                  "\n"
                                  R"({"prompt": "q", "chosen": "", "rejected": "z"})");
  const std::vector<std::string> pairs{dir / "p.jsonl"};
  const auto preferences = load_preferences(pairs, encoder, 6);
  EXPECT_EQ(preferences->size(), 2);
  EXPECT_EQ(preferences->truncated(), 1);
  const Batch b = preferences->get_batch(std::vector<Sample>{{0, 0}, {1, 0}});
  ASSERT_EQ(b.size(), 4u);
  EXPECT_EQ(b[0].to_vector<int64_t>(), (std::vector<int64_t>{'q', 'a', 'b', 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(b[1].to_vector<int64_t>(),
            (std::vector<int64_t>{'a', 'b', 'c', -100, -100, -100, -100, -100, -100, -100, -100, -100}));
  EXPECT_EQ(b[3].to_vector<int64_t>(),
            (std::vector<int64_t>{'l', 'o', 'n', 'g', 'e', 'r', 'z', -100, -100, -100, -100, -100}));
}

}  // namespace
}  // namespace strata::data
