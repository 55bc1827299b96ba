#pragma once
// Words and how often they occur: what tokenizers are trained on.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace strata::text {

/// Distinct words with their counts.
class WordCounts {
 public:
  WordCounts();
  ~WordCounts();
  WordCounts(WordCounts&&) noexcept;
  WordCounts& operator=(WordCounts&&) noexcept;

  /// A word that occurs `count` times more. Empty ones are left out.
  void add(std::string_view word, int64_t count = 1);
  /// Distinct words.
  int64_t size() const;
  /// The words are numbered in no particular order; 0 <= number < size().
  std::string_view word(int64_t number) const;
  int64_t count(int64_t number) const;
  /// Bytes of memory that they take.
  uint64_t memory() const;
  /// Forgets the words and keeps the memory.
  void clear();

 private:
  struct Table;
  std::unique_ptr<Table> table_;
};

/// How count_words works.
struct CountOptions {
  /// 0: as many as num_threads() says.
  int threads = 0;
  /// Of memory for distinct words. More of them are a MemoryError: a corpus that was not cut into words, mostly.
  uint64_t max_bytes = uint64_t{8} << 30;
};

namespace detail {
WordCounts count_words(bool (*next)(void*, std::string&), void* texts,
                       void (*split)(void*, std::string_view, WordCounts&), void* splitter,
                       const CountOptions& options);
}  // namespace detail

/// Counts the words of texts as they come, on several threads, in memory for the distinct words and one text a thread.
/// next(std::string& text) fills in a text or returns false at the end; it is never called by two threads at once.
/// split(std::string_view text, WordCounts& counts) calls counts.add(word) for its words; several threads call it.
/// What either throws is thrown on. The result does not depend on the threads, but for the numbers of its words.
template <class Next, class Split>
WordCounts count_words(Next&& next, Split&& split, const CountOptions& options = {}) {
  return detail::count_words(
      [](void* texts, std::string& text) -> bool {
        return (*static_cast<std::remove_reference_t<Next>*>(texts))(text);
      },
      const_cast<void*>(static_cast<const void*>(&next)),
      [](void* splitter, std::string_view text, WordCounts& counts) {
        (*static_cast<std::remove_reference_t<Split>*>(splitter))(text, counts);
      },
      const_cast<void*>(static_cast<const void*>(&split)), options);
}

}  // namespace strata::text
