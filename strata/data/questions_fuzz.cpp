// libFuzzer: any bytes are questions that can be asked, or an error. The first byte chooses the fields.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "strata/core/error.h"
#include "strata/data/questions.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace strata;
  if (size == 0) return 0;
  const auto choice = static_cast<size_t>(bytes[0]);
  data::QuestionFields fields;
  if (choice & 1) fields.context = "{question}: {{{meta.more}}}";
  if (choice & 2) fields.choices = "a,b";
  if (choice & 4) fields.names = "names";
  if (choice & 8) fields.first = 1;
  if (choice & 16) fields.answer = "meta.answer";
  const std::string_view file(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  try {
    for (const data::ChoiceRow& row : data::parse_choices(file, "f.jsonl", fields)) {
      if (row.choices.size() < 2 || row.right < 0 || row.right >= static_cast<int64_t>(row.choices.size()))
        std::abort();
      if (std::ranges::any_of(row.choices, [](const std::string& c) { return c.empty(); })) std::abort();
      if (!row.place.starts_with("'f.jsonl': line ")) std::abort();
    }
  } catch (const IoError&) {
  }
  try {
    for (const data::AnswerRow& row : data::parse_answers(file, "f.jsonl", fields))
      if (row.answers.empty()) std::abort();
  } catch (const IoError&) {
  }
  return 0;
}
