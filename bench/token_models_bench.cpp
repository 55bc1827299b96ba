// Tokenizer models beside another library's, called by token_models.py: every command prints seconds.
//
//   token_models_bench train TYPE TEXT VOCAB THREADS MODEL.json    words between blanks, counted and learned from
//   token_models_bench encode MODEL.json TEXT THREADS              the same words to ids; prints their number and a
//   checksum, too

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/token_model.h"
#include "strata/text/pipeline/token_trainer.h"

namespace {
using clock_type = std::chrono::steady_clock;

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

template <class F>
void words_of(std::string_view text, F&& f) {
  const auto blank = [](char c) { return c == ' ' || c == '\n'; };
  for (size_t at = 0; at < text.size();) {
    if (blank(text[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && !blank(text[end])) ++end;
    f(text.substr(at, end - at));
    at = end;
  }
}

// Lines, many at a time.
size_t block_end(std::string_view text, size_t begin) {
  const size_t end = text.find('\n', begin + (size_t{1} << 16));
  return end == std::string_view::npos ? text.size() : end + 1;
}

int train(const std::string& type, const std::string& path, const std::string& vocab, const std::string& threads,
          const std::string& out) {
  const std::string text = strata::io::read_file(path);
  strata::set_num_threads(std::stoi(threads));
  const auto start = clock_type::now();
  size_t at = 0;
  const strata::text::WordCounts words = strata::text::count_words(
      [&](std::string& block) {
        if (at == text.size()) return false;
        const size_t end = block_end(text, at);
        block.assign(text, at, end - at);
        at = end;
        return true;
      },
      [](std::string_view block, strata::text::WordCounts& counts) {
        words_of(block, [&](std::string_view word) { counts.add(word); });
      });
  const double counted = seconds_since(start);
  const nlohmann::json model = strata::text::train_token_model(
      type, words, {.vocab_size = std::stoll(vocab), .min_frequency = 2, .unk_token = "<unk>"});
  std::printf("{\"words\": %lld, \"counting\": %.3f, \"seconds\": %.3f}\n", static_cast<long long>(words.size()),
              counted, seconds_since(start));
  strata::io::write_file(out, model.dump());
  return 0;
}

int encode(const std::string& model_path, const std::string& path, const std::string& threads) {
  const auto model =
      strata::text::parse_token_model(nlohmann::json::parse(strata::io::read_file(model_path)), model_path);
  const std::string text = strata::io::read_file(path);
  const auto start = clock_type::now();
  std::atomic<size_t> next{0};
  std::vector<size_t> begins;
  for (size_t at = 0; at < text.size(); at = block_end(text, at)) begins.push_back(at);
  std::atomic<uint64_t> ids{0}, sum{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < std::stoi(threads); ++t)
    workers.emplace_back([&] {
      std::vector<int32_t> out;
      for (size_t b; (b = next++) < begins.size();) {
        const size_t end = b + 1 < begins.size() ? begins[b + 1] : text.size();
        out.clear();
        words_of(std::string_view(text).substr(begins[b], end - begins[b]),
                 [&](std::string_view word) { model->encode(word, out); });
        uint64_t part = 0;
        for (const int32_t id : out) part += static_cast<uint64_t>(id);
        ids += out.size();
        sum += part;
      }
    });
  for (std::thread& w : workers) w.join();
  std::printf("{\"ids\": %llu, \"sum\": %llu, \"seconds\": %.3f}\n", static_cast<unsigned long long>(ids),
              static_cast<unsigned long long>(sum), seconds_since(start));
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  try {
    if (a.size() == 6 && a[0] == "train") return train(a[1], a[2], a[3], a[4], a[5]);
    if (a.size() == 4 && a[0] == "encode") return encode(a[1], a[2], a[3]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  std::fprintf(stderr, "token_models_bench train TYPE TEXT VOCAB THREADS MODEL.json | encode MODEL.json TEXT THREADS\n");
  return 2;
}
