// The fuzz target of templates over those of cases.jsonl.

#include <sstream>

#include "strata/core/fuzz_test_util.h"
#include "strata/io/files.h"

#include "strata/text/jinja/template_fuzz.cpp"

namespace strata::text::jinja {
namespace {

TEST(TemplateFuzz, OfCases) {
  const char* source_dir = std::getenv("STRATA_SOURCE_DIR");
  if (source_dir == nullptr) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  std::istringstream rows(io::read_file(std::string(source_dir) + "/strata/text/jinja/cases.jsonl"));
  std::vector<std::string> corpus;
  for (std::string line; std::getline(rows, line);)
    corpus.push_back(nlohmann::json::parse(line).at("source").get<std::string>());
  fuzz::run(&LLVMFuzzerTestOneInput, corpus, 3000);
}

}  // namespace
}  // namespace strata::text::jinja
