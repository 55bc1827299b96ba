#pragma once
// What an op leaves beside the bytes that it wrote, for a later one.

#include <atomic>
#include <memory>

#include "strata/core/storage.h"

namespace strata::detail {

/// It says itself which version of the bytes it is of.
struct Beside {
  Beside() = default;
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  virtual ~Beside() = default;
};

/// In place of what was left there before; it goes with the storage.
void put_beside(const Storage& s, std::unique_ptr<Beside> left);
/// What was left there last; nullptr for nothing. Valid until something else is left, or the storage ends.
Beside* beside(const Storage& s);

/// Storages that have something beside them: the end of any asks.
extern std::atomic<int> g_besides;
void drop_beside(const Storage& s);

}  // namespace strata::detail
