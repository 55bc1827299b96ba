#include "strata/text/pipeline/word_counts.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/text/pipeline/text_table_inl.h"

namespace strata::text {

struct WordCounts::Table {
  detail::TextTable words;
  std::vector<int64_t> counts;
};

WordCounts::WordCounts() : table_(std::make_unique<Table>()) {}
WordCounts::~WordCounts() = default;
WordCounts::WordCounts(WordCounts&&) noexcept = default;
WordCounts& WordCounts::operator=(WordCounts&&) noexcept = default;

void WordCounts::add(std::string_view word, int64_t count) {
  if (word.empty()) return;
  const auto [number, is_new] = table_->words.add(word);
  if (is_new)
    table_->counts.push_back(count);
  else
    table_->counts[static_cast<size_t>(number)] += count;
}

int64_t WordCounts::size() const {
  return table_->words.size();
}

std::string_view WordCounts::word(int64_t number) const {
  return table_->words[static_cast<int32_t>(number)];
}

int64_t WordCounts::count(int64_t number) const {
  return table_->counts[static_cast<size_t>(number)];
}

uint64_t WordCounts::memory() const {
  return table_->words.memory() + table_->counts.capacity() * sizeof(int64_t);
}

void WordCounts::clear() {
  table_->words.clear();
  table_->counts.clear();
}

namespace detail {
namespace {

// A thread hands its words on when it has so many: what it holds stays in its cache.
constexpr int64_t kOwnWords = 1 << 15;

class Counter {
 public:
  Counter(bool (*next)(void*, std::string&), void* texts, void (*split)(void*, std::string_view, WordCounts&),
          void* splitter, uint64_t max_bytes)
      : next_(next), texts_(texts), split_(split), splitter_(splitter), max_bytes_(max_bytes) {}

  void run() noexcept {
    try {
      WordCounts own;
      std::string text;
      while (take(text)) {
        split_(splitter_, text, own);
        if (own.size() >= kOwnWords) hand_on(own);
      }
      hand_on(own);
    } catch (...) {
      const std::lock_guard lock(texts_mutex_);
      if (failure_ == nullptr) failure_ = std::current_exception();
      ended_ = true;
    }
  }

  WordCounts result() {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return std::move(all_);
  }

 private:
  bool take(std::string& text) {
    const std::lock_guard lock(texts_mutex_);
    ended_ = ended_ || !next_(texts_, text);
    return !ended_;
  }

  void hand_on(WordCounts& own) {
    const std::lock_guard lock(all_mutex_);
    for (int64_t i = 0; i < own.size(); ++i) all_.add(own.word(i), own.count(i));
    check<MemoryError>(all_.memory() <= max_bytes_, "count_words", all_.size(), " distinct words take ", all_.memory(),
                       " bytes, at most ", max_bytes_, " are allowed (are the texts cut into words?)");
    own.clear();
  }

  bool (*next_)(void*, std::string&);
  void* texts_;
  void (*split_)(void*, std::string_view, WordCounts&);
  void* splitter_;
  uint64_t max_bytes_;
  std::mutex texts_mutex_, all_mutex_;
  bool ended_ = false;
  std::exception_ptr failure_;
  WordCounts all_;
};
}  // namespace

WordCounts count_words(bool (*next)(void*, std::string&), void* texts,
                       void (*split)(void*, std::string_view, WordCounts&), void* splitter,
                       const CountOptions& options) {
  Counter counter(next, texts, split, splitter, options.max_bytes);
  const int threads = std::clamp(options.threads > 0 ? options.threads : num_threads(), 1, 1024);
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) {
    try {
      others.emplace_back([&counter] { counter.run(); });
    } catch (const std::system_error&) {
      break;  // as many as the system gives
    }
  }
  counter.run();
  for (std::thread& t : others) t.join();
  return counter.result();
}

}  // namespace detail
}  // namespace strata::text
