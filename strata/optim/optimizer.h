#pragma once
// What all optimizers have in common: named parameters in groups, state as tensors, the step, gradient clipping.
// Parameters are f32, bf16, f16 or f64, in any mixture; arithmetic is in f32 (f64 for f64), and gradients are widened
// on the way. Updates are fused: one pass over parameter, gradient and state, on all threads, with the same result for
// any number of them.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/optim/low_precision.h"

namespace strata::detail {
class Pins;
}

namespace strata::optim {

struct Slab;
struct ScaleRule;
struct OptimizerRecord;
struct StateHome;
enum class Rule : uint8_t;
class LossScaler;
class AheadUpdate;
struct AheadTimes;
struct GradParts;

/// Parameters with their names, as nn::Module::named_parameters() gives them.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
/// Tensors by name; what a safetensors file holds.
using StateDict = std::map<std::string, Tensor>;

/// Parameters that share their options. Each group has a learning rate of its own: options.lr * lr_scale.
template <class Options>
struct ParamGroup {
  NamedTensors params;
  Options options = {};
  double lr_scale = 1;  ///< stays when set_lr() changes options.lr
};

/// The same tensors under the names "0", "1", ...
NamedTensors number_params(const TensorList& params);

/// Matrices and larger in the first list, vectors and scalars (norms, biases) in the second: the usual split for
/// weight decay.
std::pair<NamedTensors, NamedTensors> split_by_rank(const NamedTensors& params);

/// What Optimizer::step_guarded() looks at beside the gradients.
struct StepGuard {
  double max_norm = __builtin_inf();  ///< gradients are scaled so that their joint 2-norm is at most this
  Tensor loss;                        ///< one element of f32 or f64; undefined: not looked at
  LossScaler* scaler = nullptr;       ///< the loss was multiplied by its scale before backward()
  /// The sum of the squares of the gradients that the norm is of, one number of f64 where they are, by whom it is known
  /// already, for whom parts of them are elsewhere; undefined: it is found here.
  Tensor squares;
};

/// What a guarded step found and did.
struct StepReport {
  /// What became of it.
  enum Outcome {
    updated,
    skipped,  ///< the scaled gradients were not finite: nothing was updated, and the scale is smaller now
    diverged  ///< the loss or the gradients are not finite: nothing was updated, nor will be by later guarded steps
  };
  double loss = 0;   ///< 0 where none was given
  double norm = 0;   ///< of the gradients before clipping, without the loss scale
  double scale = 1;  ///< the loss scale that they had
  Outcome outcome = updated;
  /// From the host's copy of what step_guarded() returned.
  static StepReport of(const double* numbers);
};

/// What every optimizer does; make one of its kinds, or one by its name with make_optimizer() (record.h).
///
/// Parameters may be sharded tensors (strata/core/placement.h), then every rank of their mesh makes the same calls.
/// What is updated is each rank's own part, by the part of the gradient, which is brought to lie as its parameter where
/// it does not. Rules that look at more than one element get it gathered, one parameter at a time
/// (OptimizerRecord::unit). Norms are those of the whole, the same bits in every rank, and a loss or a gradient that is
/// not finite in one rank is so in all.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient, by its gradient times `grad_scale`; the others stay as they are.
  /// Throws DTypeError or ShapeError when a gradient does not fit its parameter.
  void step(double grad_scale = 1);
  /// Scales the gradients so that their joint 2-norm is at most `max_norm`, and steps: clip_grad_norm() and step() with
  /// the scaling folded into the update, the gradients themselves unchanged. Returns the norm before; when that is not
  /// finite, nothing is updated.
  double step_clipped(double max_norm);
  /// A step that is left out, on the device and without waiting for it, where the loss or a gradient is not finite.
  /// After a step that diverged, later ones change nothing either, until reset_guard(): a program may look at the
  /// reports late and still finds the parameters as they were. Returns the report as f64 [5] in one place, which the
  /// next step overwrites: on the parameters' device where the optimizer's rules run there with all gradients on one,
  /// else (having waited) on the host.
  Tensor step_guarded(const StepGuard& guard = {});
  /// Lets step_guarded() update again after a divergence.
  void reset_guard();

  /// Whether step_guarded() and step() over parameters on a CUDA device can be captured in a CUDA graph: all of this
  /// library's can but SparseAdam, and none whose state has a home elsewhere. A replay takes the learning rates, decays
  /// and scales as they are then (Adafactor's eps2 and clip_threshold and what shapes Muon's products stay as they were
  /// captured); the step's count is kept on the device. A step must have run before the capture, so that the state
  /// exists, and the optimizer must live while the graph is replayed.
  bool capturable() const;

  /// Where the state lives from now on, and who updates from it (home.h); a default StateHome is the parameters' own
  /// device again. State that is there moves. Throws ValueError for a home that this optimizer cannot have, with the
  /// reason, and DeviceError where there is no such memory; then nothing has changed.
  void set_home(const StateHome& home);
  /// The home that was set; its share is the one that was found.
  StateHome home() const;
  /// Of a home with `ahead`: how long the last update took that was waited for; nothing before the first.
  std::optional<AheadTimes> ahead_times() const;
  /// Waits for the update that a home with `delayed` or `ahead` has under way. With `delayed` the parameters have it
  /// only then, as they must where they are evaluated, saved or written by others, or outlive the optimizer.
  /// state_dict() and set_home() call it. Throws what the update threw.
  void finish() const;

  /// Norms and divergences are those of all ranks of `group` ("pp"), which have other parameters than this one, as the
  /// stages of a pipeline have; beside the axes of sharded parameters, whose meshes are without that one. All of them
  /// step together. "" is the state that it begins with.
  void norm_over(std::string group) { norm_group_ = std::move(group); }
  /// Norms and divergences are those of the gradients of `whole` instead of the parameters': where these are this rank's
  /// parts and those are all of it, in every rank alike, the norm has the same bits whatever the parts are, and no
  /// rank asks another one. They must have their gradients when a step is made. Empty is the state that it begins with.
  void norm_of(TensorList whole) { norm_of_ = std::move(whole); }

  /// Drops the gradients, or (with set_to_none false) fills them with zeros.
  void zero_grad(bool set_to_none = true);

  /// State by "<parameter>.<state>", e.g. "blocks.0.weight.exp_avg"; tensors that share the optimizer's storage.
  /// Parameters that have not been updated yet have none. Learning rates and other options are not part of it. A moment
  /// in 8 bits (LowPrecision::state_8bit) is two tensors: codes of u8 by its name, and "<parameter>.<state>_absmax".
  /// What has the shape of a sharded parameter is a sharded tensor that lies as it; other states are the same in every
  /// rank.
  StateDict state_dict() const;
  /// Copies the state of a state_dict() of an optimizer of the same kind over parameters of the same names. Throws
  /// ValueError naming a key that is missing or not expected, ShapeError, DTypeError; then nothing has changed. Moments
  /// in one tensor are rounded to 8 bits where this optimizer keeps them so, and those in 8 bits are widened where not.
  /// Sharded tensors are brought to lie as their parameter, and whole ones cut.
  void load_state_dict(const StateDict& state);
  /// The same, without a copy of what is where it belongs already: the optimizer takes the tensors, whose storage
  /// nobody else may use (those of another optimizer's state_dict() are used, by that optimizer).
  void take_state_dict(StateDict&& state);

  /// Bytes of the state that every parameter will have once it was updated; of sharded ones, in this rank.
  int64_t state_bytes() const;

  /// Sets the learning rate of every group to lr * lr_scale.
  virtual void set_lr(double lr) = 0;
  virtual double lr(size_t group = 0) const = 0;
  virtual size_t num_groups() const = 0;
  /// "adamw", for error texts and reports.
  std::string_view name() const { return name_; }
  /// What is known of its kind; nullptr for a class of a program's own.
  const OptimizerRecord* record() const { return record_; }
  /// A group's options: a struct of the record's type.
  virtual const void* raw_options(size_t group) const = 0;
  /// All parameters, group after group.
  NamedTensors params() const;

 protected:
  struct StateSpec {
    std::string_view key;
    Shape shape;
    DType dtype;
    double fill = 0;  ///< what it begins with
    /// OptimizerState::after, of the parameter's group.
    double (*after)(const void* options, double lr, int64_t updates) = nullptr;
    bool nonnegative = false;  ///< of a moment
    bool lies = false;         ///< as its sharded parameter does: `shape` is this rank's part
  };
  struct Param {
    std::string name;
    Tensor tensor;  ///< of a sharded parameter, this rank's part
    size_t group = 0;
    LowPrecision low = {};
    size_t index = 0;           ///< among all parameters
    std::vector<Tensor> state;  ///< in the order of full_spec(); empty before the first update
    uint32_t version = 0;       ///< of the parameter, as it was left with the weights of the state "master"
    Tensor grad;                ///< during step(): row-major, f64 beside f64, else f32, bf16 or f16
    bool first = false;         ///< during step(): the state has just been made
    bool renews_low = false;    ///< during step(): its copy for autocast is written with it
    Tensor sharded;             ///< the parameter of which `tensor` is a part; undefined for a plain one
    /// What the optimizer was given.
    const Tensor& given() const { return sharded.defined() ? sharded : tensor; }
    /// The whole parameter's.
    const Shape& shape() const { return given().shape(); }
  };

  explicit Optimizer(std::string_view name) : name_(name) {}
  explicit Optimizer(const OptimizerRecord& record);
  friend void set_options(Optimizer& optimizer, size_t group,
                          const std::map<std::string, std::variant<bool, int64_t, double>, std::less<>>& values);
  /// Throws unless the tensors are distinct row-major floating leaves with distinct names.
  void add_params(const NamedTensors& params, size_t group, const LowPrecision& low);
  /// The tensors that the rule keeps for `p`. A state named "step" of shape [] is an i64 count of the updates: where it
  /// is on the host step() advances it.
  virtual std::vector<StateSpec> state_spec(const Param& p) const;
  /// Updates `active`, whose gradients are defined and whose state exists. Here: by the record's fused rule.
  virtual void update(const std::vector<Param*>& active, double grad_scale);
  /// What a rule computes with: f64 for a parameter of f64, else f32.
  static DType arithmetic_dtype(const Param& p);
  /// What running moments of every element are kept in.
  static DType moment_dtype(const Param& p);
  /// The states that a record names, for a parameter with these options.
  static std::vector<StateSpec> states_of(const OptimizerRecord& record, const void* options, double lr,
                                          const Param& p);
  /// Appends the moment that is the rule's state `index`: one tensor of moment_dtype(), or its codes in 8 bits and the
  /// scales of their blocks.
  static void add_moment(std::vector<StateSpec>& spec, std::string_view key, const Param& p, double fill, Rule rule,
                         size_t index);
  /// What a rule updates: the parameter, or its weights in f32 where the state has them.
  static Tensor weights_of(const Param& p);
  /// `p` for the fused loops, its states from `first_state` on.
  static Slab slab_of(const Param& p, size_t first_state = 0);
  /// Whether update() over parameters of a CUDA device takes each step's numbers there through run() alone, which can
  /// leave the clipping to the device.
  virtual bool fused() const;
  /// Whether update() is one call of run() over memory of parameters, gradients and state alone, so that another thread
  /// can make it later.
  virtual bool one_run() const;
  /// A rule over tensors of update(), with the factor that a device found.
  void run(Rule rule, const std::vector<Slab>& slabs);
  /// Whether update() runs before a replay: run() only writes constants, and nothing else may be queued.
  bool refreshing() const { return refreshing_ > 0; }

 private:
  // What a captured step leaves for its replays.
  struct Captured {
    std::vector<size_t> active;  // by params_
    TensorList low;              // of each of them, the copy for autocast that the graph reads and writes
    double grad_scale = 1;
    TensorList constants;  // of each call of run()
  };
  // Of a home (home.cpp): what of each parameter the host has.
  struct Home;
  // While one lives, the gradients that the host updates by are on the host.
  class HostGradients {
   public:
    explicit HostGradients(Optimizer& o);
    ~HostGradients();
    HostGradients(const HostGradients&) = delete;
    // The tensors whose gradients a step reads, in the order of the parameters.
    TensorList holders() const;

   private:
    Optimizer& optimizer_;
  };
  struct Place {
    Device device;
    std::optional<Tier> tier;  // of a home; else the thread's
    Tensor make(const StateSpec& spec) const;
  };
  // Where a state of `p` is made.
  Place place_of(const Param& p, const StateSpec& spec) const;
  void step_from_home(double grad_scale);
  // Of a home with `ahead` (home_ahead.cpp): updates whose step() has returned.
  struct Ahead;
  // Begins those that can be; by the parameters' index, which they are.
  std::vector<bool> begin_ahead(double grad_scale);
  bool goes_ahead(Param& p, double grad_scale, AheadUpdate& update);
  void end_ahead() const;
  // Of updates that begin in backward(): from an UpdateInBackward's beginning to its end, and until step().
  friend class UpdateInBackward;
  friend struct GradientNotes;
  void open_ahead();
  void begin_complete();
  void leave_backward();
  // What has begun is not followed by the rest of the step.
  void end_early() const;
  // Throws where some have begun, and gradients would be scaled.
  void check_none_begun(bool scales) const;
  // The sum of squares of all gradients, of one device, from what was noted as backward() made them; undefined where
  // not all was.
  Tensor noted_squares(Device device);
  void forget_squares();
  // Takes a run of a rule that another thread is to make.
  bool delay(Rule rule, const std::vector<Slab>& slabs);
  void clear_host_gradients(bool set_to_none);
  // Holds what a step of `p` reads and writes; false where it has no gradient.
  bool take_gradient(Param& p, strata::detail::Pins& pins);
  // One update of parameters that take_gradient() took.
  void update_taken(const std::vector<Param*>& active, double grad_scale, bool dry);
  void load_state(const StateDict& given, bool take);
  // Of sharded parameters (placed.cpp): throws where this optimizer cannot have one.
  void check_sharded(const Param& p) const;
  // Whether an update needs more of it than a rank has.
  bool is_gathered(const Param& p) const;
  // Updates the whole of it in every rank, and takes this rank's part.
  void update_gathered(Param& p, double grad_scale);
  // The state that a file has, for load_state(): in forms that it knows.
  StateDict readable_state(const StateDict& given) const;
  GradParts gradients_of(const TensorList& holders, bool writable) const;
  void show_update(const std::vector<Param*>& active);
  void run_loops(Rule rule, const std::vector<Slab>& slabs);
  // Queues the numbers as they are now on the way to the device, where the captured step reads them.
  void refresh(const std::shared_ptr<Captured>& captured);
  // The rule's states, then those of LowPrecision: a count if there is none yet, the weights in f32.
  std::vector<StateSpec> full_spec(const Param& p) const;
  static bool has_master(const Param& p);
  static bool is_compensated(const Param& p);
  // Codes in 8 bits where `spec` has a moment in one tensor, and the reverse: in what a parameter has, and in what is
  // loaded.
  void refit(std::vector<Tensor>& state, const std::vector<StateSpec>& spec) const;
  StateDict refitted(const StateDict& state) const;
  // What there is of the state, brought to where and what it is to be; returns how many of them.
  size_t keep_state(Param& p, const std::vector<StateSpec>& spec, strata::detail::Pins& pins);
  // The state as a step needs it; whether it was made now.
  bool prepare_state(Param& p, bool dry, strata::detail::Pins& pins);
  void renew_master(Param& p);
  double step_clipped_on_device(double max_norm, const GradParts& grads);
  Device step_device(const Tensor& param) const;
  // A queued update is a write to the parameter and to the copy that it renews; ends what step() noted of it.
  void count_write(Param& p);

  const double* factor_ = nullptr;      // on the device, during a step that looks before it updates
  Tensor verdict_;                      // that holds it
  size_t observed_runs_ = 0;            // of rules, shown to observers during a step
  Tensor report_;                       // of step_guarded()
  std::shared_ptr<Captured> captured_;  // of the step that is being captured or refreshed, or was last
  size_t refreshing_ = 0;               // during refresh(): 1 + the calls of run() so far
  const std::shared_ptr<char> alive_ = std::make_shared<char>();  // for graphs that hold a step
  std::string_view name_;
  const OptimizerRecord* record_ = nullptr;
  std::vector<Param> params_;
  std::shared_ptr<Home> home_;    // nullptr for the parameters' own device
  std::shared_ptr<Ahead> ahead_;  // nullptr where step() updates before it returns
  std::string norm_group_;        // of norm_over()
  TensorList norm_of_;            // of norm_of()
};

/// An optimizer whose groups have `Options`, which must have the members `double lr`, `LowPrecision low` and
/// validate(), and for the constructors that take no name the record of its kind, record().
template <class Options>
class OptimizerOf : public Optimizer {
 public:
  /// Parameters with their own options.
  using Group = ParamGroup<Options>;

  explicit OptimizerOf(const std::vector<Group>& groups) : Optimizer(Options::record()) { add(groups); }
  explicit OptimizerOf(const NamedTensors& params, const Options& options = {})
      : OptimizerOf(std::vector<Group>{{params, options}}) {}
  explicit OptimizerOf(const TensorList& params, const Options& options = {})
      : OptimizerOf(number_params(params), options) {}

  void set_lr(double lr) override {
    for (Settings& g : groups_) g.options.lr = lr;
  }
  double lr(size_t group = 0) const override { return groups_.at(group).options.lr * groups_.at(group).lr_scale; }
  size_t num_groups() const override { return groups_.size(); }
  /// The options of a group; they may be changed between steps.
  Options& options(size_t group = 0) { return groups_.at(group).options; }
  const Options& options(size_t group = 0) const { return groups_.at(group).options; }
  const void* raw_options(size_t group) const override { return &groups_.at(group).options; }

 protected:
  OptimizerOf(std::string_view name, const std::vector<Group>& groups) : Optimizer(name) { add(groups); }
  const Options& options_of(const Param& p) const { return groups_[p.group].options; }

 private:
  struct Settings {
    Options options;
    double lr_scale;
  };
  void add(const std::vector<Group>& groups) {
    for (const Group& g : groups) {
      g.options.validate();
      groups_.push_back({g.options, g.lr_scale});
      add_params(g.params, groups_.size() - 1, g.options.low);
    }
  }
  std::vector<Settings> groups_;
};

/// The 2-norm of all gradients of `params` together (0 when there is none), summed in f64 and in an order that does not
/// depend on the number of threads. Of sharded tensors it is the whole's, on every rank, which all call it.
double grad_norm(const TensorList& params);
/// Scales the gradients of `params` in place so that their joint 2-norm is at most `max_norm`; returns the norm before.
/// A norm that is not finite leaves them unchanged (PyTorch makes them NaN).
double clip_grad_norm(const TensorList& params, double max_norm);
/// Clamps every element of the gradients of `params` to [-max, max], in place.
void clip_grad_value(const TensorList& params, double max);

}  // namespace strata::optim
