#pragma once
// What ranks of data parallelism send each other in a step: one record for each way, from whole gradients to ranks that
// meet now and then. Settings, their checks, the guide's table and tests come from the records (docs/design/dist.md).

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/exchange_options.h"
#include "strata/dist/group.h"

namespace strata::distributed {

/// One member of ExchangeOptions, for tables.
struct ExchangeOption {
  std::string_view name;  ///< "rank": the key parallel.reduce_rank
  std::string_view doc;   ///< one sentence
  bool whole;             ///< int64_t, else double
  double min, max;        ///< both in the range
  void* (*field)(ExchangeOptions&);
  /// Its value.
  double value(const ExchangeOptions& options) const;
};
/// All of them.
std::span<const ExchangeOption> exchange_options();

/// A setting beside which a way is refused.
struct ExchangeRefusal {
  std::string_view key;  ///< "parallel.tp"
  double most = 0;       ///< of a number: the largest that is not refused
  /// Of a text: the values that are refused, separated by blanks; "*" for all but the empty one.
  std::string_view texts = {};
  std::string_view why;  ///< ends the message: "ranks have other parts of each gradient"
};

class GradientExchange;

/// A way to exchange gradients.
struct ExchangeRecord {
  /// What an update takes.
  enum class Gives : uint8_t {
    gradients,   ///< averages of the ranks' gradients, or what stands for them
    direction,   ///< what is taken from parameters, times the learning rate: an update by plain SGD
    parameters,  ///< each rank's own gradients; parameters come together
  };
  std::string_view name;                  ///< as in parallel.reduce
  std::string_view doc;                   ///< one paragraph, with its source
  std::vector<std::string_view> options;  ///< names of those that it reads
  std::vector<ExchangeRefusal> refuses;
  std::string_view optimizers;  ///< train.optimizer that it works with, separated by blanks; empty for any
  Gives gives = Gives::gradients;
  bool alike = true;  ///< whether all steps are the same calls, as a CUDA graph wants
  /// Bytes that a rank of `ranks` sends in a step for f32 gradients of these shapes, on average and once started, where
  /// a sum over ranks costs 2 (n-1)/n of its bytes; the host's transports send up to 2 KB to everybody instead.
  double (*sent)(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions& options) = nullptr;
  /// Bytes of the state that a rank keeps for it.
  double (*kept)(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions& options) = nullptr;
  std::unique_ptr<GradientExchange> (*make)(const std::vector<std::pair<std::string, Tensor>>& parameters, Group& group,
                                            const ExchangeOptions& options) = nullptr;

  /// Whether it reads the option.
  bool reads(std::string_view option) const;
  /// Throws ValueError naming an option that it reads and that is out of range.
  void check(const ExchangeOptions& options) const;
};

/// Every way, "plain" first.
std::span<const ExchangeRecord> exchange_records();
/// The one of that name. Throws ValueError listing those that there are.
const ExchangeRecord& exchange_record(std::string_view name);

/// One way at work, over a group whose ranks have the same parameters. What a way has to send and did not, it keeps and
/// adds to what it sends next (error feedback), in f32.
///
///     auto exchange = distributed::make_exchange("int8", model.named_parameters(), distributed::group("dp"));
///     for (const Batch& batch : rows_of_this_rank) {
///       loss(batch).backward();
///       exchange->finish();      // parameters' gradients are what int8 makes of the ranks' average
///       optimizer.step();
///       exchange->updated();
///       optimizer.zero_grad();
///     }
///
/// After each finish(), of ways that give parameters after each meeting, all ranks have the same bits where they compute
/// alike (one kind of processor, one build). A parameter without a gradient counts as one of zeros.
class GradientExchange {
 public:
  /// Names and tensors, as nn::Module::named_parameters() gives them.
  using Parameters = std::vector<std::pair<std::string, Tensor>>;
  virtual ~GradientExchange() = default;
  GradientExchange(const GradientExchange&) = delete;

  const ExchangeRecord& record() const { return record_; }
  /// This process's number in the group, and how many there are.
  int64_t rank() const { return group_.rank(); }
  int64_t ranks() const { return group_.size(); }
  /// Whether the next backward's gradients are the last of this step. True from the start; of a way that sends while
  /// backward runs (plain).
  virtual void reduce_next(bool) {}
  /// Behind backward: makes the parameters' gradients what the record says that an update takes. `max_norm` is for a
  /// direction, which no update can clip: of the gradients that it is made of. Throws DistributedError.
  void finish(double max_norm = std::numeric_limits<double>::infinity());
  /// Behind the update.
  void updated();

  /// What a run goes on with: "NAME" is the same in all ranks, "rank-R.NAME" this rank's alone. Tensors share this
  /// object's storage.
  std::map<std::string, Tensor> state_dict();
  /// Copies it. What begins with "rank-" is looked for as this rank's. Throws ValueError naming what is missing,
  /// ShapeError.
  void load_state_dict(const std::map<std::string, Tensor>& state);
  /// Copies what is the same in all ranks, and begins anew with the rest: for another number of ranks.
  void load_common_state(const std::map<std::string, Tensor>& state);
  /// Of ways that give parameters, while ranks have other ones: brings the mean of the ranks' to `parameters`, and back.
  /// Nothing happens elsewhere. All ranks call it.
  virtual void enter_mean() {}
  virtual void leave_mean() {}

  /// Bytes that this rank has sent in all, those of the last step, and those that gradients as they are would have taken.
  int64_t sent_bytes() const { return sent_; }
  int64_t step_bytes() const { return step_sent_; }
  double plain_bytes() const;
  /// Seconds of the last step's finish() and updated(), on the host; what a card does meanwhile is not in it.
  double seconds() const { return seconds_; }
  /// Seconds that whole gradients of the same parameters take to travel, measured now with up to 100 MB. All ranks call it.
  double plain_seconds();

 protected:
  struct Parameter {
    std::string name;
    Tensor tensor;
  };
  /// Makes the parameters of every rank those of the group's first. Those that require no gradient are left alone. Throws
  /// ValueError for parameters in parts, DistributedError where the ranks' lists differ.
  GradientExchange(const ExchangeRecord& record, const Parameters& parameters, Group& group,
                   const ExchangeOptions& options);

  virtual void exchange(double max_norm) = 0;
  virtual void after_update() {}
  /// A state's name, whether it is this rank's alone, and it.
  struct State {
    std::string name;
    bool own;
    Tensor tensor;
  };
  virtual std::vector<State> states() { return {}; }
  /// After states were loaded.
  virtual void loaded() {}

  // f32 or raw bytes over the group, which are counted.
  void mean_of_ranks(const Tensor& flat, const std::string& what);
  Tensor to_ranks(const Tensor& parts, const std::string& what);  // [n, ..] -> [n, ..]: part r goes to rank r
  Tensor from_ranks(const Tensor& own, const std::string& what);  // [..] -> [n, ..]
  void count(int64_t bytes) { sent_ += bytes; }

  const ExchangeRecord& record_;
  Group& group_;
  ExchangeOptions options_;
  std::vector<Parameter> parameters_;
  Device device_;

 private:
  void load(const std::map<std::string, Tensor>& state, bool own);
  int64_t sent_ = 0, step_sent_ = 0, before_ = 0;
  double seconds_ = 0;
};

/// The way of that name over these parameters. Throws ValueError for a name that is none, options out of range and
/// parameters in parts; DistributedError where the ranks' lists differ.
std::unique_ptr<GradientExchange> make_exchange(std::string_view name, const GradientExchange::Parameters& parameters,
                                                Group& group, const ExchangeOptions& options = {});

}  // namespace strata::distributed
