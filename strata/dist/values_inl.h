#pragma once
// What a job's store holds, in the process that holds it.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "strata/dist/store.h"

namespace strata::distributed::detail {

constexpr size_t kLongestKey = 256;
constexpr size_t kLargestValue = size_t{1} << 20;

/// Throws ValueError for a key that is empty, too long or not printable ASCII without blanks.
void check_key(std::string_view key);
/// Throws ValueError for a value that is too large.
void check_value(std::string_view key, std::string_view value);
/// "key 'x' was not set within 1.5 s", for the errors of every store.
std::string not_set_text(std::string_view key, std::chrono::milliseconds waited);

/// The values by key. Any thread may call anything.
class Values {
 public:
  /// How much all keys and values may take together.
  explicit Values(size_t most_keys = size_t{1} << 20, size_t most_bytes = size_t{1} << 28)
      : most_keys_(most_keys), most_bytes_(most_bytes) {}
  /// Throws ValueError as check_key() and check_value() do, DistributedError where the store is full.
  void set(std::string_view key, std::string_view value);
  /// Waits until `deadline` or close(); std::nullopt where the key is not set by then.
  std::optional<std::string> get(std::string_view key, std::chrono::steady_clock::time_point deadline);
  /// Throws ValueError where the value is no integer or the sum is out of range.
  int64_t add(std::string_view key, int64_t amount);
  void remove(std::string_view key);
  /// Ends all waiting.
  void close();

 private:
  void put(std::string_view key, std::string value);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;
  const size_t most_keys_, most_bytes_;
  bool closed_ = false;
};

/// A store over values of this process.
std::unique_ptr<Store> make_store(std::shared_ptr<Values> values);

}  // namespace strata::distributed::detail
