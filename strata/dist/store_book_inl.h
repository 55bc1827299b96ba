#pragma once
// How ranks of a group find each other: through the job's store.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "strata/core/error.h"
#include "strata/dist/store.h"
#include "strata/dist/transport.h"

namespace strata::distributed {

inline std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "?";
  return name;
}

/// Addresses under a prefix of the store.
class StoreBook final : public AddressBook {
 public:
  // `trouble` says which ranks are dead; empty while none is.
  StoreBook(Store& store, std::string prefix, std::chrono::milliseconds patience, std::function<std::string()> trouble)
      : store_(store), prefix_(std::move(prefix)), patience_(patience), trouble_(std::move(trouble)) {}
  void set(const std::string& key, const std::string& value) override { store_.set(prefix_ + key, value); }
  std::string get(const std::string& key) override {
    const std::chrono::steady_clock::time_point until = std::chrono::steady_clock::now() + patience_;
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      try {
        return store_.get(prefix_ + key,
                          std::clamp(left, std::chrono::milliseconds(0), std::chrono::milliseconds(500)));
      } catch (const DistributedError&) {
        // Who is dead will not come.
        if (const std::string dead = trouble_(); !dead.empty()) throw DistributedError("group", dead);
        if (left <= std::chrono::milliseconds(500)) throw;
      }
    }
  }

 private:
  Store& store_;
  std::string prefix_;
  std::chrono::milliseconds patience_;
  std::function<std::string()> trouble_;
};

}  // namespace strata::distributed
