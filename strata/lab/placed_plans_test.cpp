// Plans that calls with sharded arguments share: every record's samples, one after the other on the same threads, so
// that a plan that belongs to other arguments would be found and used.

#include <gtest/gtest.h>

#include "strata/core/placed_plans_inl.h"
#include "strata/core/samples.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/lab/compare.h"

namespace strata::lab {
namespace {

using strata::detail::PlacedPlans;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kWays = 1;
#else
constexpr int kWays = 4;
#endif

// Ways in which a call's tensors lie: way 0 cuts the first dimension of each, 1 the last, 2 that of the first tensor
// alone, 3 makes them partial sums where they are floating.
std::string way_of(const Tensor& t, size_t index, int way) {
  if (!t.defined() || t.impl().wrapped_number) return "";
  if (way == 3) return is_floating(t.dtype()) ? "P(sum)" : "R";
  if (t.dim() == 0 || (way == 2 && index > 0)) return "R";
  return cat("S(", way == 1 ? t.dim() - 1 : 0, ")");
}

std::vector<Value> placed(const std::vector<Value>& args, int way) {
  size_t index = 0;
  std::vector<Value> own = args;
  const auto place = [&](Tensor& t) {
    const std::string text = way_of(t, index++, way);
    if (!text.empty()) t = distributed::distribute(t.contiguous().clone(), text);
  };
  for (Value& v : own) {
    if (Tensor* t = std::get_if<Tensor>(&v)) {
      place(*t);
    } else if (TensorList* list = std::get_if<TensorList>(&v)) {
      for (Tensor& t : *list) place(t);
    }
  }
  return own;
}

// What a call gave: how each result lies and this rank's bytes of it.
std::vector<std::string> seen(const std::vector<Value>& results) {
  std::vector<std::string> all;
  for (const Tensor& t : tensors_of(results)) {
    if (!t.defined()) {
      all.emplace_back("undefined");
      continue;
    }
    const Tensor here = is_placed(t) ? local_part(t) : t;
    all.push_back(cat(t.shape(), t.strides(), t.dtype(), distributed::placements_of(t), here.shape(), bytes(here)));
  }
  return all;
}

TEST(PlacedPlans, EveryRecordGivesWithAKeptPlanWhatItGivesWithItsOwn) {
  struct Sampled {
    const OpBase* op;
    Sample sample;
  };
  std::vector<Sampled> all;
  for (const OpBase* op : OpBase::all()) {
    if (op->file().ends_with("_test.cpp") || !op->has_samples()) continue;
    const ShardRule& rule = strata::detail::rule_of(*op);
    if (rule.empty() || rule.text == "unplaced" || rule.text == "itself") continue;
    for (const DType dtype : {DType::f32, DType::i64, DType::boolean}) {
      if (!(op->dtypes() & dtype_bit(dtype))) continue;
      Samples samples(dtype);
      try {
        op->samples(samples);
      } catch (const std::exception&) {
        break;  // the plain verification says so
      }
      for (const Sample& s : samples.valid) {
        const NoGrad guard;
        try {
          (void)op->call_boxed(s.args);
        } catch (const std::exception&) {
          continue;
        }
        if (!tensors_of(s.args).empty()) all.push_back({op, s});
      }
      break;
    }
  }
  ASSERT_GT(all.size(), 1500U);
  std::atomic<uint64_t> found{0}, made{0};
  distributed::run_as_ranks(distributed::Mesh("a=2"), [&](int rank) {
    const NoGrad guard;
    PlacedPlans& plans = PlacedPlans::mine();
    for (const Sampled& s : all)
      for (int way = 0; way < kWays; ++way) {
        const auto call = [&] { return seen(s.op->call_boxed(placed(s.sample.args, way))); };
        plans.off = true;
        const std::vector<std::string> want = call();
        plans.off = false;
        for (const char* which : {"of an earlier call or its own", "its own, kept"})
          if (call() != want)
            throw std::runtime_error(cat(s.op->name(), " ", s.sample.label, " ", text_of(s.sample.args), ", way ", way,
                                         ": another result with the plan ", which));
        ++made;
      }
    if (rank == 0) found = plans.found();
    if (plans.size() > 2 * PlacedPlans::kMost) throw std::runtime_error("more plans than are to be kept");
  });
  // Most calls find their plan the second time: not those of composed forms, and of results that depend on values.
  EXPECT_GT(found.load(), made.load() / 4);
}

}  // namespace
}  // namespace strata::lab
