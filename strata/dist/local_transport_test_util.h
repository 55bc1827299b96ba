#pragma once
// Ranks that are threads, each with a transport alone, for tests.

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "strata/dist/local_transport_inl.h"

namespace strata::distributed {

/// Calls body(rank, transport) on `size` threads and rethrows the first rank's exception.
inline void on_ranks(int size, const std::function<void(int, std::unique_ptr<Transport>)>& body) {
  const auto shared = std::make_shared<Mailboxes>();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r, std::make_unique<LocalTransport>(shared, r));
      } catch (...) {
        errors[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors) {
    if (e) std::rethrow_exception(e);
  }
}

}  // namespace strata::distributed
