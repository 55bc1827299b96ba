#pragma once
// Tests of collectives on cards without cards: the library that plays NCCL, and a lane on which it works at once, on
// the host's memory. In a job of several ranks tensors of the CPU then go the way of a card's.

#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>

#include "strata/dist/device_group_inl.h"
#include "strata/dist/played_stream_test_util.h"

namespace strata::distributed {

class HostLane final : public detail::Lane {
 public:
  Device device() const override { return Device::cpu(); }
  void* stream() const override { return nullptr; }
  void within(const std::function<void()>& fn) const override { fn(); }
  void fork() override {}
  std::unique_ptr<Point> point() override {
    struct Passed final : Point {
      void wait() override {}
    };
    return std::make_unique<Passed>();
  }
  void follow(const Point&) override {}
  void mark_begun() override { ++begun_; }
  void mark_ended() override { ++ended_; }
  uint64_t begun() const override { return begun_; }
  uint64_t ended() const override { return ended_; }
  uint64_t capture() const override { return capture_number; }
  void on_replay(std::weak_ptr<const void> owner, std::function<void()> fn) override {
    replays.emplace_back(std::move(owner), std::move(fn));
  }
  void synchronize() override {}

  /// @name What a graph would do
  static inline uint64_t capture_number = 0;
  static inline std::vector<std::pair<std::weak_ptr<const void>, std::function<void()>>> replays;

 private:
  std::atomic<uint64_t> begun_{0}, ended_{0};
};

/// A lane on which work goes on beside the caller, who is the stream that computes.
class StreamLane final : public detail::Lane {
 public:
  /// On a stream of its own, or on one that several lanes share.
  explicit StreamLane(std::shared_ptr<PlayedStream> stream = std::make_shared<PlayedStream>())
      : stream_(std::move(stream)) {}
  Device device() const override { return Device::cpu(); }
  void* stream() const override { return stream_.get(); }
  void within(const std::function<void()>& fn) const override { fn(); }
  void fork() override {}  // what the caller computes is there
  std::unique_ptr<Point> point() override { return std::make_unique<Queued>(stream_, stream_->queued()); }
  void follow(const Point& point) override {
    const auto& p = static_cast<const Queued&>(point);
    stream_->queue([stream = p.stream, number = p.number] { stream->wait(number); });
  }
  void mark_begun() override {
    stream_->queue([this] { ++begun_; });
  }
  void mark_ended() override {
    stream_->queue([this] { ++ended_; });
  }
  uint64_t begun() const override { return begun_; }
  uint64_t ended() const override { return ended_; }
  uint64_t capture() const override { return 0; }
  void on_replay(std::weak_ptr<const void>, std::function<void()>) override {}
  void synchronize() override { stream_->wait(stream_->queued()); }

 private:
  struct Queued final : Point {
    Queued(std::shared_ptr<PlayedStream> s, uint64_t n) : stream(std::move(s)), number(n) {}
    void wait() override { stream->wait(number); }
    std::shared_ptr<PlayedStream> stream;
    uint64_t number;
  };
  std::atomic<uint64_t> begun_{0}, ended_{0};
  std::shared_ptr<PlayedStream> stream_;
};

/// From here on, in this process, each group's calls go on beside the others'.
inline void play_streams() {
  setenv("STRATA_NCCL", STRATA_FAKE_NCCL, 1);
  detail::set_test_lanes([](Device) -> std::unique_ptr<detail::Lane> { return std::make_unique<StreamLane>(); });
}

/// The same with one stream for all of them, which is given back: as cards may put a graph's branches into one queue.
inline PlayedStream& play_one_queue() {
  static const auto stream = std::make_shared<PlayedStream>();
  setenv("STRATA_NCCL", STRATA_FAKE_NCCL, 1);
  detail::set_test_lanes([](Device) -> std::unique_ptr<detail::Lane> { return std::make_unique<StreamLane>(stream); });
  return *stream;
}

/// From here on, in this process.
inline void play_cards() {
  setenv("STRATA_NCCL", STRATA_FAKE_NCCL, 1);
  detail::set_test_lanes([](Device) -> std::unique_ptr<detail::Lane> { return std::make_unique<HostLane>(); });
}

}  // namespace strata::distributed
