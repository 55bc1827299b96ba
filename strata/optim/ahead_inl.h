#pragma once
// An update whose step() has returned: pieces of parameters whose bytes are at home in the host's memory, taken in
// order by the processor, by a card, or by both, whoever is free. docs/design/optimizers.md, "Ahead of the next
// forward".

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "strata/cuda/runtime.h"
#include "strata/memory/reserved.h"
#include "strata/optim/home.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

class AheadCard;

/// Any thread may claim pieces; one at a time adds, begins, closes and waits.
class AheadUpdate {
 public:
  /// What of a parameter is away from everybody until its pieces are done.
  struct Owner {
    struct Part {
      memory::Reserved bytes;
      bool written = false;
    };
    std::vector<Part> parts;
    std::string name;      ///< of the parameter, for a log
    Tensor count;          ///< i64 of the host, which counts this update already; undefined for none
    TensorList fixed;      ///< what is not reserved, as it lies in the host's memory
    bool exposed = false;  ///< readers of its weights are not held back
    size_t order = 0;      ///< in which owners are wanted by who reads them next

   private:
    friend class AheadUpdate;
    std::mutex mutex;  // of `settled`
    bool settled = false;
    std::atomic<int64_t> left{0};  // pieces
  };
  /// A part of a slab, whose addresses are the host's.
  struct Piece {
    Rule rule = {};
    Slab slab;
    Owner* owner = nullptr;
  };
  /// Elements of a piece; what must not be divided is one.
  static constexpr int64_t kPiece = int64_t{2} << 20;

  AheadUpdate() = default;
  /// Waits for what has begun.
  ~AheadUpdate();
  AheadUpdate(const AheadUpdate&) = delete;

  /// Those of one parameter; before begin(), or after it until close(). What is exposed is written after what the
  /// device's current stream holds by then.
  void add(std::unique_ptr<Owner> owner, std::span<const std::pair<Rule, std::vector<Slab>>> runs);
  bool empty() const { return pieces_.empty(); }
  /// Hands out the pieces, to the processor, to the card of `device`, or both, after what the device's current stream
  /// holds now. `verdict`: there, a Verdict; undefined: the gradients are as they are. With `open` more will be added.
  void begin(Device device, bool host, AheadCard* card, const Tensor& verdict, bool open = false);
  /// Nothing is added any more. What nobody has taken yet is taken in the owners' order from now on, the exposed first.
  void close();
  /// Until those that are exposed have been updated, or all is over.
  void wait_for_exposed();
  /// Throws what an executor threw. Every reservation has ended.
  void wait();
  /// Once it was waited for.
  AheadTimes times() const;

  // ---- for executors

  /// The next pieces, at most `most`, alike in rule; empty where there are none, or all is over. Waits while there may
  /// be more. What belongs to them is at home.
  std::vector<const Piece*> claim(size_t most);
  void done(const Piece& piece);
  /// Where the card holds the factor of gradients; nullptr for none.
  const double* factor() const;

 private:
  void run(const std::function<void()>& executor) noexcept;
  void on_host();
  void judge();
  void settle(Owner& owner);
  void end(Owner& owner, const std::exception_ptr& failure);

  std::vector<std::unique_ptr<Owner>> owners_;
  std::deque<Piece> pieces_;
  mutable std::mutex mutex_;  // of the next, and of both above while it is open
  std::condition_variable changed_;
  size_t next_ = 0, exposed_ = 0;
  bool open_ = false;
  int running_ = 0;
  std::exception_ptr failure_;
  int64_t added_ = 0, done_ = 0;  // elements
  double before_close_ = 0;       // the share of them that was done
  Tensor verdict_, report_;       // on the card, and its copy on the host
  // Of the card, after which its kernels use nothing of it; after which they use nothing that is exposed.
  std::optional<cuda::Event> ready_, exposed_ready_;
  Device device_;
  std::once_flag judged_;
  double factor_ = 1;
  bool skipped_ = false;
  std::atomic<int64_t> by_host_{0};
  std::chrono::steady_clock::time_point begun_, known_, ended_;
  std::vector<std::jthread> threads_;
};

/// A card's executor: pieces go through memory of its own, several under way, on streams for each direction and for the
/// rule. Lives from step to step.
class AheadCard {
 public:
  /// Pieces under way at once.
  static constexpr size_t kSlots = 4;
  virtual ~AheadCard() = default;
  /// The rule's stream comes after what the current one holds now.
  virtual void follow() = 0;
  /// Claims pieces until there are none, on the calling thread.
  virtual void run(AheadUpdate& update) = 0;
};
/// Throws DeviceError.
std::unique_ptr<AheadCard> make_ahead_card(Device device);
}  // namespace strata::optim
