#pragma once
// A transport between the threads of one process: messages go through mailboxes.

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "strata/dist/transport.h"

namespace strata::distributed {

/// What the threads share.
struct Mailboxes {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int, int, uint64_t>, std::deque<std::string>> boxes;  // from, to, channel
  bool aborted = false;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<Mailboxes> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}
  std::unique_ptr<Transfer> send(int to, uint64_t channel, const void* data, size_t bytes) override {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->boxes[{rank_, to, channel}].emplace_back(static_cast<const char*>(data), bytes);
    }
    shared_->changed.notify_all();
    return std::make_unique<Sent>();
  }
  std::unique_ptr<Transfer> receive(int from, uint64_t channel, void* data, size_t bytes) override {
    return std::make_unique<Received>(*shared_, std::tuple(from, rank_, channel), data, bytes);
  }
  void abort() noexcept override {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->aborted = true;
    }
    shared_->changed.notify_all();
  }

 private:
  struct Sent final : Transfer {
    void wait() override {}
  };
  struct Received final : Transfer {
    Received(Mailboxes& s, std::tuple<int, int, uint64_t> k, void* d, size_t n)
        : shared(s), key(k), data(d), bytes(n) {}
    void wait() override {
      std::unique_lock lock(shared.mutex);
      auto& box = shared.boxes[key];
      if (!shared.changed.wait_for(lock, std::chrono::seconds(20), [&] { return shared.aborted || !box.empty(); })) {
        throw std::runtime_error("nothing came within 20 s");
      }
      if (box.empty()) throw std::runtime_error("the connections were closed");
      if (box.front().size() != bytes) throw std::runtime_error("a message of another size");
      std::memcpy(data, box.front().data(), bytes);
      box.pop_front();
    }
    Mailboxes& shared;
    std::tuple<int, int, uint64_t> key;
    void* data;
    size_t bytes;
  };

  std::shared_ptr<Mailboxes> shared_;
  int rank_;
};

}  // namespace strata::distributed
