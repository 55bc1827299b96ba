#pragma once
// Knowing a storage again without holding it: its number, and what became of its version.

#include <cstdint>
#include <string_view>

#include "strata/core/storage.h"

namespace strata::detail {

/// The number of a storage, given at the first call: never another's, also when that gets the same address.
uint64_t watch_number(Storage& s);
/// The last number that was given.
uint64_t last_watch_number();

/// Tells the version of a storage that it does not hold: that of now, or the one at its end. Any thread may ask.
class StorageWatch {
 public:
  explicit StorageWatch(Storage& s);
  ~StorageWatch();
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

  uint64_t number() const { return number_; }
  uint32_t version() const;
  /// Whether it has not ended.
  bool alive() const;
  /// Storage::last_writer().
  std::string_view last_writer() const;

  /// `s`, which has a number, is about to end.
  static void ends(const Storage& s);

 private:
  uint64_t number_;
  const Storage* storage_;  // nullptr after its end; under the lock of all watches, as the two below are
  uint32_t version_ = 0;
  std::string_view writer_;
};

}  // namespace strata::detail
