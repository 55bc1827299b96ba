#pragma once
// What is known of an optimizer, in one place: docs/design/optimizers.md. Its folder defines one record; the checks of
// options, the keys of `strata train`, the classes of Python and Node, their types and the reference are made from it.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "strata/optim/optimizer.h"

namespace strata::optim {

/// What an option may be.
struct OptionRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above = false;  ///< min itself is not allowed
  bool below = false;  ///< max itself is not allowed
  /// Whether `x` is in it; false for NaN.
  bool holds(double x) const { return (above ? x > min : x >= min) && (below ? x < max : x <= max); }
  /// "must not be negative", "lies in [0, 1)".
  std::string text() const;
};
inline constexpr OptionRange kNotNegative{.min = 0};
inline constexpr OptionRange kPositive{.min = 0, .above = true};
inline constexpr OptionRange kDecay{.min = 0, .max = 1, .below = true};  ///< of a running mean: [0, 1)

/// An option's value; `int64_t` for counts and seeds.
using OptionValue = std::variant<bool, int64_t, double>;
/// Options by name.
using OptionValues = std::map<std::string, OptionValue, std::less<>>;

/// One option: a member of the struct that the optimizer's groups have.
struct OptimizerOption {
  /// The kinds of value: `count` is an int, `seed` a uint64_t.
  enum class Kind : uint8_t { number, boolean, count, seed };
  std::string_view name;  ///< "weight_decay"; Node writes it as weightDecay
  std::string_view doc;   ///< one sentence
  Kind kind;
  void* (*field)(void* options);
  OptionRange range = {};
  /// The key [train] of a configuration that it is read from: "" for the option's name, "-" where there is none.
  std::string_view key = {};

  /// Its value in `options`, a struct of the record's type.
  OptionValue get(const void* options) const;
  /// Throws ValueError naming `optimizer` and the option for a value of another kind; the range is validate()'s.
  void set(void* options, const OptionValue& value, std::string_view optimizer) const;
};

/// One state of a parameter.
struct OptimizerState {
  /// A count of updates, i64; a number, f64, that each update of a fused rule takes for k[kRate] and replaces by what
  /// complete() left in k[kNextRate]; a tensor like the parameter; or one whose shape the optimizer's class knows.
  /// Counts and rates come first.
  enum class Kind : uint8_t { count, rate, like, own };
  std::string_view name;  ///< "exp_avg", the last part of its key in a state_dict()
  std::string_view doc;
  Kind kind = Kind::like;
  bool (*when)(const void* options) = nullptr;               ///< whether there is one; always where nullptr
  double (*fill)(const void* options, double lr) = nullptr;  ///< what it begins with; 0 where nullptr
  /// Of a rate: what it is after so many updates at one `lr`, 0 for the first; files that lack it are read by this.
  double (*after)(const void* options, double lr, int64_t updates) = nullptr;
};

/// A number that PyTorch keeps as state and that follows from the count of the updates.
struct DerivedState {
  std::string_view name;
  double (*value)(const void* options, double lr, int64_t updates);
};

/// An optimizer. Made by record() of its options' struct; `strata/optim/<name>/` has all that belongs to it.
struct OptimizerRecord {
  std::string_view name;   ///< "adamw": the folder, train.optimizer, error texts
  std::string_view title;  ///< "AdamW": the class
  std::string_view doc;
  std::vector<OptimizerOption> options;  ///< those of LowPrecision at the end
  std::vector<OptimizerState> states;
  /// PyTorch's constructor after `params`, for Python: "lr, betas=(beta1, beta2), eps, *, foreach". What names no
  /// option is one of PyTorch's switches of how it computes.
  std::string_view python;
  const void* defaults = nullptr;                   ///< a struct of options
  void (*together)(const void* options) = nullptr;  ///< throws for options that do not fit
  std::unique_ptr<Optimizer> (*make)(const OptimizerRecord&, const std::vector<struct AnyGroup>&) = nullptr;
  /// Whether weight_decay is apart from the gradient; nullptr: it is added to it.
  bool (*decoupled)(const void* options) = nullptr;
  /// How training groups the parameters, of which `tables` (names) are no linear maps but looked up by rows, or
  /// outputs; nullptr: matrices, and vectors without weight_decay.
  std::vector<struct AnyGroup> (*groups)(const NamedTensors& params, const OptionValues& options,
                                         const std::set<std::string>& tables) = nullptr;
  bool in_training = true;  ///< whether train.optimizer may name it
  std::vector<DerivedState> derived = {};

  /// Of a fused rule: what is done to each element, and its constants k[1], k[2], ... of this step.
  Rule (*rule)(const void* options) = nullptr;
  void (*constants)(double* k, const void* options, double lr, bool first) = nullptr;
  /// What a rule looks at together to update one element: of a parameter that is sharded more finely, every rank
  /// gathers the whole for the update.
  enum class Unit : uint8_t {
    element,  ///< the element alone
    row,      ///< all that has its index in dimension 0
    whole,    ///< the parameter
  };
  /// Which of them, for a parameter of so many dimensions; Unit::element where nullptr.
  Unit (*unit)(const void* options, int dims) = nullptr;
  /// Whether a processor with fused multiply-add and a card give the same bits, which is promised of fused rules but
  /// those whose constants are powers.
  bool same_bits = true;

  /// The option of that name; nullptr where there is none.
  const OptimizerOption* option(std::string_view option_name) const;
  /// Throws ValueError naming the optimizer and the option that is out of range.
  void validate(const void* options) const;
  /// Sets the options that are named. Throws ValueError for a name that is none of its options, with those there are.
  void assign(void* options, const OptionValues& values) const;
  /// All options with their values.
  OptionValues values(const void* options) const;
};

/// Parameters with options by name; those that are not named have their defaults.
struct AnyGroup {
  NamedTensors params;
  OptionValues options = {};
  double lr_scale = 1;
};

/// The groups that `record` wants for the parameters of a model in training.
std::vector<AnyGroup> training_groups(const OptimizerRecord& record, const NamedTensors& params,
                                      const OptionValues& options, const std::set<std::string>& tables = {});

/// Every record, sorted by name.
std::span<const OptimizerRecord* const> optimizer_records();
/// The record of that name or title. Throws ValueError listing the names.
const OptimizerRecord& optimizer_record(std::string_view name);
/// The optimizer of that name. Throws ValueError for options that it does not have or that are out of range, and what
/// the constructors throw.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const std::vector<AnyGroup>& groups);
/// Changes the options of a group that are named: all of them, or none when one is wrong (ValueError). Options of
/// LowPrecision stay as they were when the optimizer was made.
void set_options(Optimizer& optimizer, size_t group, const OptionValues& values);
/// The reference page of all records, in Markdown; the records as JSON, for those who write types and stubs.
std::string optimizers_markdown();
std::string optimizers_json();

}  // namespace strata::optim
