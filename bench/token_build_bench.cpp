// Text to a token file beside encoding it alone: what reading, ordering, the journal and the file add.
//   token_build_bench TEXT FOLDER [repeats of the text: 180] [rounds: 3]
// The file is written into FOLDER. Byte pairs are learned from the text, 8192 of them. Rounds take turns; the best of
// each counts.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "strata/data/token_file.h"
#include "strata/io/files.h"
#include "strata/text/bpe.h"

namespace {

using namespace strata;

double seconds_of(auto f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto s = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return s(used.ru_utime) + s(used.ru_stime);
}

// The parts that the build encodes, by some threads, into nothing.
int64_t encode_alone(const text::Tokenizer& tokenizer, const std::vector<std::string_view>& parts, int threads) {
  std::atomic<size_t> next{0};
  std::atomic<int64_t> tokens{0};
  std::vector<std::jthread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&] {
      for (size_t i; (i = next++) < parts.size();) tokens += static_cast<int64_t>(tokenizer.encode(parts[i]).size());
    });
  all.clear();
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("token_build_bench TEXT FOLDER [repeats] [rounds]\n", stderr);
    return 2;
  }
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 180, rounds = argc > 4 ? std::atoi(argv[4]) : 3;
  const std::string text = io::read_file(argv[1]), folder = argv[2];
  std::string all;
  for (int i = 0; i < repeats; ++i) all += text;
  const std::string source = folder + "/text.txt", out = folder + "/text.tokens";
  io::write_file(source, all);
  const text::BpeTokenizer tokenizer = text::train_bpe(text, {.vocab_size = 8192});
  std::vector<std::string_view> parts;
  for (std::string_view rest = all; !rest.empty();) {
    parts.push_back(rest.substr(0, data::encodable_prefix(rest, size_t{4} << 20)));
    rest.remove_prefix(parts.back().size());
  }
  const double mb = static_cast<double>(all.size()) / 1e6;
  std::printf("%.1f MB, vocabulary %lld\n", mb, static_cast<long long>(tokenizer.vocab_size()));
  std::printf("| threads | | s | processor s | MB/s | tokens/s | |\n|---|---|---|---|---|---|---|\n");
  for (const int threads : {1, 2}) {
    double best[2] = {1e9, 1e9}, work[2] = {1e9, 1e9};
    int64_t tokens[2] = {0, 0};
    for (int r = 0; r < rounds; ++r)
      for (const int way : {0, 1}) {
        const double before = processor_seconds();
        const double s = seconds_of([&] {
          tokens[way] =
              way == 0 ? encode_alone(tokenizer, parts, threads)
                       : data::build_token_file(std::vector<std::string>{source}, tokenizer, out, {.threads = threads})
                             .tokens;
        });
        best[way] = std::min(best[way], s);
        work[way] = std::min(work[way], processor_seconds() - before);
      }
    if (tokens[0] != tokens[1]) {
      std::fprintf(stderr, "%lld and %lld tokens\n", static_cast<long long>(tokens[0]),
                   static_cast<long long>(tokens[1]));
      return 1;
    }
    for (const int way : {0, 1})
      std::printf("| %d | %s | %.2f | %.2f | %.1f | %.2fM | %+.1f%% |\n", threads,
                  way == 0 ? "encode alone" : "the token file", best[way], work[way], mb / best[way],
                  static_cast<double>(tokens[way]) / best[way] / 1e6, 100 * (best[way] / best[0] - 1));
  }
  return 0;
}
