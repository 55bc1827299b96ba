#include "strata/dist/store.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

#include "strata/dist/values_inl.h"

namespace strata::distributed {
namespace detail {
namespace {

constexpr std::string_view kOp = "store";

class ProcessStore final : public Store {
 public:
  explicit ProcessStore(std::shared_ptr<Values> values) : values_(std::move(values)) {}
  void set(std::string_view key, std::string_view value) override { values_->set(key, value); }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    std::optional<std::string> value = values_->get(key, std::chrono::steady_clock::now() + timeout);
    if (!value) throw DistributedError(kOp, not_set_text(key, timeout));
    return std::move(*value);
  }
  int64_t add(std::string_view key, int64_t amount) override { return values_->add(key, amount); }
  void remove(std::string_view key) override { values_->remove(key); }

 private:
  std::shared_ptr<Values> values_;
};

}  // namespace

void check_key(std::string_view key) {
  check(!key.empty() && key.size() <= kLongestKey, kOp, "a key has 1 to ", kLongestKey, " bytes, this one has ",
        key.size());
  check(std::ranges::all_of(key, [](char c) { return c > ' ' && c <= '~'; }), kOp,
        "a key is printable ASCII without blanks, this one has other bytes");
}

void check_value(std::string_view key, std::string_view value) {
  check(value.size() <= kLargestValue, kOp, "a value has at most ", kLargestValue, " bytes, that of '", key, "' has ",
        value.size());
}

std::string not_set_text(std::string_view key, std::chrono::milliseconds waited) {
  return cat("key '", key, "' was not set within ", 1e-3 * static_cast<double>(waited.count()), " s");
}

void Values::put(std::string_view key, std::string value) {
  const auto at = values_.find(key);
  const size_t before = at == values_.end() ? 0 : key.size() + at->second.size();
  const size_t after = bytes_ - before + key.size() + value.size();
  check<DistributedError>(after <= most_bytes_ && values_.size() + (before == 0) <= most_keys_, kOp,
                          "the store is full: ", values_.size(), " keys, ", bytes_,
                          " bytes; remove keys that are not needed any more");
  if (at == values_.end())
    values_.emplace(key, std::move(value));
  else
    at->second = std::move(value);
  bytes_ = after;
  changed_.notify_all();
}

void Values::set(std::string_view key, std::string_view value) {
  check_key(key);
  check_value(key, value);
  const std::lock_guard lock(mutex_);
  put(key, std::string(value));
}

std::optional<std::string> Values::get(std::string_view key, std::chrono::steady_clock::time_point deadline) {
  check_key(key);
  std::unique_lock lock(mutex_);
  auto at = values_.end();
  changed_.wait_until(lock, deadline, [&] {
    at = values_.find(key);
    return at != values_.end() || closed_;
  });
  return at == values_.end() ? std::nullopt : std::optional(at->second);
}

int64_t Values::add(std::string_view key, int64_t amount) {
  check_key(key);
  const std::lock_guard lock(mutex_);
  int64_t sum = 0;
  if (const auto at = values_.find(key); at != values_.end()) {
    const std::string& text = at->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sum);
    check(error == std::errc() && end == text.data() + text.size(), kOp, "the value of '", key, "' is no integer");
  }
  check(!__builtin_add_overflow(sum, amount, &sum), kOp, "the sum at '", key, "' is out of range");
  put(key, std::to_string(sum));
  return sum;
}

void Values::remove(std::string_view key) {
  check_key(key);
  const std::lock_guard lock(mutex_);
  if (const auto at = values_.find(key); at != values_.end()) {
    bytes_ -= at->first.size() + at->second.size();
    values_.erase(at);
  }
}

void Values::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::unique_ptr<Store> make_store(std::shared_ptr<Values> values) {
  return std::make_unique<ProcessStore>(std::move(values));
}

}  // namespace detail

std::unique_ptr<Store> make_local_store() {
  return detail::make_store(std::make_shared<detail::Values>());
}

}  // namespace strata::distributed
