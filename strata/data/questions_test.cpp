#include "strata/data/questions.h"

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"

namespace strata::data {
namespace {

class Questions : public testing::Test {
 protected:
  std::vector<std::string> file(std::string_view rows) {
    io::write_file(dir_ / "q.jsonl", rows);
    return {dir_ / "q.jsonl"};
  }
  static QuestionFields fields(std::initializer_list<const char*> settings) {
    QuestionFields f;
    for (const char* s : settings) set_field(f, s);
    return f;
  }
  std::string error(std::string_view row, const QuestionFields& f) {
    try {
      read_choices(file(row), f);
    } catch (const Error& e) {
      const std::string text = e.what();
      return text.substr(text.find("line 1") == std::string::npos ? 0 : text.find("line 1"));
    }
    return "no error";
  }

 private:
  io::TempDir dir_;
};

using Texts = std::vector<std::string>;

TEST_F(Questions, TheFormsThatSetsHave) {
  // HellaSwag's, ARC's, MMLU's, BoolQ's by patterns, SciQ's
  const auto swag = read_choices(file(R"({"ctx": "A man", "endings": ["sits", "runs"], "label": "1"})"),
                                 fields({"context=ctx", "choices=endings", "answer=label"}));
  ASSERT_EQ(swag.size(), 1u);
  EXPECT_EQ(swag[0].context, "A man");
  EXPECT_EQ(swag[0].choices, (Texts{"sits", "runs"}));
  EXPECT_EQ(swag[0].right, 1);
  const auto arc_fields = fields(
      {"context=Question: {question}\nAnswer:", "choices=choices.text", "names=choices.label", "answer=answerKey"});
  const auto arc = read_choices(
      file(R"({"question": "Q?", "choices": {"text": ["a", "b", "c"], "label": ["A", "B", "C"]}, "answerKey": "C"})"
           "\n\n"
           R"({"question": "R?", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "1"})"),
      arc_fields);
  ASSERT_EQ(arc.size(), 2u);
  EXPECT_EQ(arc[0].context, "Question: Q?\nAnswer:");
  EXPECT_EQ(arc[0].right, 2);
  EXPECT_EQ(arc[1].right, 0);  // by name, though it is a number
  EXPECT_EQ(read_choices(file(R"({"question": "Q", "choices": ["w", "x", "y", "z"], "answer": 3})"))[0].right, 3);
  EXPECT_EQ(read_choices(file(R"({"question": "Q", "choices": ["w", "x"], "answer": "B"})"))[0].right, 1);
  EXPECT_EQ(read_choices(file(R"({"question": "Q", "choices": ["w", "x"], "answer": "x"})"))[0].right, 1);
  EXPECT_EQ(
      read_choices(file(R"({"question": "Q", "choices": ["w", "x"], "answer": 1})"), fields({"first=1"}))[0].right, 0);
  const auto several = read_choices(file(R"({"question": 7, "a": "one", "b": "two", "answer": "two"})"),
                                    fields({"choices=a,b", "context={{{question}}} ="}));
  EXPECT_EQ(several[0].choices, (Texts{"one", "two"}));
  EXPECT_EQ(several[0].context, "{7} =");
  EXPECT_EQ(several[0].right, 1);
}

TEST_F(Questions, AnswersToWrite) {
  const auto rows =
      read_answers(file("{\"question\": \"2+2\", \"answer\": 4}\n{\"question\": \"x\", \"answer\": [\"a\", \"b\"]}"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].answers, (Texts{"4"}));
  EXPECT_EQ(rows[1].answers, (Texts{"a", "b"}));
  EXPECT_THROW(read_answers(file("{\"question\": \"x\", \"answer\": []}")), IoError);
  EXPECT_THROW(read_answers(file("\n")), IoError);
}

TEST_F(Questions, OfAFileInMemory) {
  const auto rows = parse_choices("\n{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 1}", "m");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].place, "'m': line 2");
  EXPECT_EQ(parse_answers("{\"question\": \"q\", \"answer\": 1}", "m")[0].answers, (Texts{"1"}));
  EXPECT_THROW(parse_answers("", "m"), IoError);
}

TEST_F(Questions, ErrorsNameTheLineAndWhatIsWrong) {
  const QuestionFields plain;
  EXPECT_EQ(error("{", plain), "line 1, byte 1: is not valid JSON from here on");
  EXPECT_EQ(error(R"({"q": 1})", plain), "line 1: the object has no member 'question'; it has 'q'");
  EXPECT_EQ(error(R"({"question": "", "choices": "a", "answer": 0})", plain),
            "line 1: the member 'choices' is no list");
  EXPECT_EQ(error(R"({"question": "", "choices": ["a", null], "answer": 0})", plain),
            "line 1: the member 'choices' is no text");
  EXPECT_EQ(error(R"({"question": "", "choices": ["a"], "answer": 0})", plain),
            "line 1: has 1 choices, at least 2 are wanted");
  EXPECT_EQ(error(R"({"question": "", "choices": ["a", ""], "answer": 0})", plain), "line 1: has an empty choice");
  EXPECT_EQ(error(R"({"question": "", "choices": ["a", "b"], "answer": 2})", plain),
            "line 1: the right choice is '2', which is none of the 2");
  EXPECT_EQ(error(R"({"question": "", "choices": ["a", "b"], "answer": "C"})", plain),
            "line 1: the right choice is 'C', which is none of the 2");
  EXPECT_EQ(error(R"({"question": "", "choices": ["ab", "ab"], "answer": "ab"})", plain),
            "line 1: the right choice is 'ab', and that could be several");
  EXPECT_EQ(error(R"({"question": "", "choices": ["a", "b"], "answer": "x", "n": ["x"]})", fields({"names=n"})),
            "line 1: there are 2 choices and 1 names of them");
  EXPECT_NE(error(R"({"question": "", "choices": ["a", "b"], "answer": 0})", fields({"context={question"}))
                .find("a { without a }"),
            std::string::npos);
  EXPECT_NE(error(R"({"question": "", "choices": ["a", "b"], "answer": 0})", fields({"context=question}"}))
                .find("a } without a {"),
            std::string::npos);
  QuestionFields f;
  EXPECT_THROW(set_field(f, "label=x"), ValueError);
  EXPECT_THROW(set_field(f, "context"), ValueError);
  EXPECT_THROW(set_field(f, "first=one"), ValueError);
}

}  // namespace
}  // namespace strata::data
