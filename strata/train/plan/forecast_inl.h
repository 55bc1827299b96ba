#pragma once
// One layout's step by its events.

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "strata/dist/pipeline/table.h"
#include "strata/train/plan/layout.h"
#include "strata/train/plan/network_inl.h"
#include "strata/train/plan/plan.h"
#include "strata/train/plan/profile_inl.h"

namespace strata::plan {

// What a rank computes and what travels for it, one behind the other each: a message begins when it is asked for and those
// before it have gone, beside the computing.
class Lanes {
 public:
  explicit Lanes(double overlap) : slower_(1 - overlap) {}

  // Computes for so long, and longer where something travels.
  void compute(double seconds);
  // Sends; gives the time at which that is done.
  double start(double seconds, double bytes);
  void wait(double until);
  void send(double seconds, double bytes) { wait(start(seconds, bytes)); }
  void finish() { wait(network_); }
  // So many times more what came after `before`.
  void again(const Lanes& before, double times);

  double now() const { return now_; }
  double computed() const { return computed_; }
  double exposed() const { return now_ - computed_; }
  double sent() const { return sent_; }
  double exposed_bytes() const { return exposed_bytes_; }

 private:
  struct Message {
    double begin, end, bytes;
  };
  double slower_, now_ = 0, network_ = 0, computed_ = 0, sent_ = 0, exposed_bytes_ = 0;
  std::vector<Message> messages_;
  size_t gone_ = 0;  // messages that no later wait can meet
};

// What travels within one layer, in one direction.
struct Within {
  double seconds = 0, bytes = 0;                // while the rank waits
  double beside_seconds = 0, beside_bytes = 0;  // of a ring, while it computes
};

class Forecaster {
 public:
  explicit Forecaster(const Profile& profile);

  // `order` as Network has it.
  Forecast operator()(const ParallelLayout& layout, const std::vector<int>& order = {});
  // Of it the seconds alone.
  double seconds(const ParallelLayout& layout, const std::vector<int>& order);

 private:
  struct Step;
  Within within(const Step& s, size_t layer, bool backward) const;
  void talk(const Step& s, Lanes& lanes) const;
  void flat(const Step& s, Forecast& f) const;
  void pipelined(const Step& s, Forecast& f);
  void memory_of(const Step& s, Forecast& f) const;
  double whole_at_start(const Step& s) const;
  const Network& network(int64_t ranks, const std::vector<int>& order);

  struct Proved {
    distributed::pipeline::Table table;
    distributed::pipeline::Proof proof;
    std::vector<int64_t> cuts;
    bool halves = false;  // whether backward passes are split
  };
  const Proved& table(const ParallelLayout& layout);

  const Profile& profile_;
  bool later_;  // whether ranks that keep parts of weights never have all of them
  std::map<std::vector<int>, Network> networks_;  // by order; one number of ranks at a time
  int64_t ranks_ = 0;
  std::map<std::tuple<std::string, int64_t, int64_t, int64_t>, Proved> tables_;
};

}  // namespace strata::plan
