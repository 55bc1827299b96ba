#pragma once
// The ids of words that were met before.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace strata::text::detail {

/// Keeps short words and their ids in tables of fixed size, a word in the one place that its hash gives it. There is a
/// table for each of a few threads; one that another thread has at this moment is passed over, nobody waits.
class WordCache {
 public:
  static constexpr size_t kWordBytes = 26, kIds = 9;

  WordCache();
  ~WordCache();

  /// Appends the ids of `word`, those kept or those that make(ids) appends.
  template <class Make>
  void encode(std::string_view word, std::vector<int32_t>& ids, Make&& make) const {
    if (word.size() > kWordBytes) return make(ids);
    Table& table = tables_[thread_number() % kTables];
    if (table.busy.test_and_set(std::memory_order_acquire)) return make(ids);
    const Release release{table};
    Slot& slot = table.slot(word, seed_);
    const size_t before = ids.size();
    if (slot.holds(word)) {
      ids.resize(before + slot.count);
      std::copy_n(slot.ids, slot.count, ids.data() + before);
      return;
    }
    make(ids);
    if (ids.size() - before <= kIds) slot.keep(word, ids.data() + before, ids.size() - before);
  }

 private:
  static constexpr size_t kTables = 32, kSlots = size_t{1} << 14;

  struct alignas(64) Slot {
    char word[kWordBytes];
    uint8_t size = 0, count = 0;  // size 0: free
    int32_t ids[kIds];

    bool holds(std::string_view w) const { return size == w.size() && std::string_view(word, size) == w; }
    void keep(std::string_view w, const int32_t* from, size_t n) {
      w.copy(word, w.size());
      size = static_cast<uint8_t>(w.size());
      count = static_cast<uint8_t>(n);
      std::copy_n(from, n, ids);
    }
  };
  static_assert(sizeof(Slot) == 64);

  struct Table {
    std::atomic_flag busy;
    std::unique_ptr<Slot[]> slots;  // made when first asked
    Slot& slot(std::string_view word, uint64_t seed);
  };
  struct Release {
    Table& table;
    ~Release() { table.busy.clear(std::memory_order_release); }
  };
  static unsigned thread_number();

  uint64_t seed_;
  mutable std::array<Table, kTables> tables_;
};

}  // namespace strata::text::detail
