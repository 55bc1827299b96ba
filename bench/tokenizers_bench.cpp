// A tokenizer.json on documents: tokenizers_bench TOKENIZER DOCUMENTS THREADS [IDS [TEXTS]]. Documents are separated by
// NUL bytes. Prints the seconds of reading the tokenizer and of the best of three passes over all documents, and writes
// the ids (little-endian, 32 bits, -1 behind each document) and what they decode to. bench/compare_tokenizers.py runs it beside
// PyPI's `tokenizers`.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/io/files.h"
#include "strata/text/pipeline_tokenizer.h"

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int run(int argc, char** argv) {
  using namespace strata;
  if (argc != 5 && argc != 7) {
    std::fputs("tokenizers_bench TOKENIZER DOCUMENTS THREADS PASSES [IDS TEXTS]\n", stderr);
    return 2;
  }
  set_num_threads(std::atoi(argv[3]));
  const double begin = now();
  const auto tokenizer = text::PipelineTokenizer::parse(io::read_file(argv[1]), argv[1]);
  const double loaded = now() - begin;
  const std::string all = io::read_file(argv[2]);
  std::vector<std::string_view> documents;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\0', at), all.size());
    documents.emplace_back(all.data() + at, end - at);
    at = end + 1;
  }
  double best = 1e30;
  std::vector<std::vector<int32_t>> ids;
  for (int pass = 0; pass < std::atoi(argv[4]); ++pass) {
    ids.clear();
    const double start = now();
    ids = tokenizer->encode_batch(documents);
    best = std::min(best, now() - start);
  }
  size_t n = 0;
  for (const auto& d : ids) n += d.size();
  std::printf("{\"load_s\": %.4f, \"encode_s\": %.4f, \"bytes\": %zu, \"ids\": %zu}\n", loaded, best, all.size(), n);
  if (argc == 7) {
    io::FileWriter out(argv[5]);
    for (const auto& d : ids) {
      const int32_t end = -1;
      out.write(d.data(), d.size() * sizeof d[0]);
      out.write(&end, sizeof end);
    }
    out.commit();
    io::FileWriter texts(argv[6]);
    for (const auto& d : ids) {
      texts.write(tokenizer->decode(d, {.skip_special_tokens = true}));
      texts.write(std::string_view("\0", 1));
    }
    texts.commit();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
