#pragma once
// Fuzz targets as tests: good inputs, and seeded mutations of them. STRATA_FUZZ_ROUNDS says how many, STRATA_FUZZ_SEED
// which ones; scripts/fuzz runs every test that has "Mutat" or "Fuzz" in its name with both.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace strata::fuzz {

using Target = int (*)(const uint8_t*, size_t);

/// The rounds of a test:
///
///     for (fuzz::Rounds round(2000); round.next();) target(mutated(corpus, round.random));
///
/// Each draws from numbers of its own, so that STRATA_FUZZ_FIRST=N begins with round N. A round that ends the process,
/// or runs for a minute, is named on the standard error. At the end a line says how many there were, how long they
/// took, and how long the slowest.
class Rounds {
 public:
  explicit Rounds(uint64_t usual)
      : seed_(setting("STRATA_FUZZ_SEED", 1)),
        number_(setting("STRATA_FUZZ_FIRST", 0)),
        last_(number_ + setting("STRATA_FUZZ_ROUNDS", usual)),
        told_(std::getenv("STRATA_FUZZ_ROUNDS") != nullptr) {
    for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL, SIGALRM}) std::signal(signal, &Rounds::fell);
  }
  Rounds(const Rounds&) = delete;
  ~Rounds() {
    alarm(0);
    for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL, SIGALRM}) std::signal(signal, SIG_DFL);
    if (told_)
      std::printf("fuzz: %llu rounds, %.2f s, the slowest %.1f ms (round %llu)\n",
                  static_cast<unsigned long long>(done_), seconds_, slowest_ * 1e3,
                  static_cast<unsigned long long>(slowest_round_));
  }

  /// Whether there is another, which then has begun.
  bool next() {
    const auto now = std::chrono::steady_clock::now();
    if (begun_) {
      const double took = std::chrono::duration<double>(now - began_).count();
      seconds_ += took;
      if (took > slowest_) slowest_ = took, slowest_round_ = number_;
      ++number_, ++done_;
    }
    if (number_ >= last_) return false;
    begun_ = true;
    began_ = now;
    std::snprintf(running, sizeof running, "in round STRATA_FUZZ_SEED=%llu STRATA_FUZZ_FIRST=%llu\n",
                  static_cast<unsigned long long>(seed_), static_cast<unsigned long long>(number_));
    random.seed(seed_ << 40 ^ number_);
    alarm(kMostSeconds);
    return true;
  }
  /// Which one runs.
  uint64_t number() const { return number_; }
  /// Those that have ended.
  uint64_t done() const { return done_; }
  /// A number below `n`.
  size_t below(size_t n) { return static_cast<size_t>(random() % n); }

  std::mt19937_64 random;

 private:
  static constexpr unsigned kMostSeconds = 60;
  static inline char running[96] = {};

  static uint64_t setting(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
  }
  static void fell(int signal) {
    const std::string_view said(running);
    if (write(STDERR_FILENO, said.data(), said.size()) < 0) std::_Exit(1);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }

  uint64_t seed_, number_, last_, done_ = 0, slowest_round_ = 0;
  bool told_, begun_ = false;
  double seconds_ = 0, slowest_ = 0;
  std::chrono::steady_clock::time_point began_;
};

/// One of `corpus` with bytes changed, put in, taken out or doubled, or a piece of another of them put in.
inline std::string mutated(const std::vector<std::string>& corpus, Rounds& round) {
  static constexpr std::string_view kPieces[] = {"{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 "\"",
                                                 ",",
                                                 ":",
                                                 "\n",
                                                 "\n\n",
                                                 "\\u0000",
                                                 "\\ud800",
                                                 "null",
                                                 "true",
                                                 "-1",
                                                 "0",
                                                 "1e999",
                                                 "18446744073709551616",
                                                 "[[[[",
                                                 "\"text\"",
                                                 "\xff",
                                                 "\xef\xbb\xbf",
                                                 "\x28\xb5\x2f\xfd",
                                                 "\x1f\x8b"};
  std::string s = corpus[round.below(corpus.size())];
  for (size_t n = 1 + round.below(6); n > 0; --n) {
    const size_t at = s.empty() ? 0 : round.below(s.size());
    switch (round.below(7)) {
      case 0:
        if (!s.empty()) s[at] = static_cast<char>(round.random());
        break;
      case 1:
        if (!s.empty()) s[at] = static_cast<char>(s[at] ^ 1 << round.below(8));
        break;
      case 2:
        s.insert(at, kPieces[round.below(std::size(kPieces))]);
        break;
      case 3:
        s.erase(at, 1 + round.below(9));
        break;
      case 4:
        s.insert(at, s.substr(round.below(s.size() + 1), round.below(40)));
        break;
      case 5:
        if (round.below(4) == 0) s.resize(at);
        break;
      default: {
        const std::string& other = corpus[round.below(corpus.size())];
        s.insert(at, other.substr(round.below(other.size() + 1), round.below(60)));
      }
    }
  }
  return s;
}

/// Every one of `corpus`, then `usual` mutations; the target ends the process where something is wrong.
inline void run(Target target, const std::vector<std::string>& corpus, uint64_t usual) {
  const auto call = [&](const std::string& s) { return target(reinterpret_cast<const uint8_t*>(s.data()), s.size()); };
  ASSERT_FALSE(corpus.empty());
  for (const std::string& s : corpus) EXPECT_EQ(call(s), 0);
  for (Rounds round(usual); round.next();) ASSERT_EQ(call(mutated(corpus, round)), 0) << round.number();
}

}  // namespace strata::fuzz
