// Every op record with arguments that mostly make no sense: a result, or an Error that names an op; never a crash, a
// hang, a great allocation, or another exception. So for the in-place form, and for the gradients of what succeeded.
//
// STRATA_FUZZ_ROUNDS (calls of each op), STRATA_FUZZ_SEED, STRATA_FUZZ_OPS (names, separated by commas) and
// STRATA_FUZZ_ROUND (that one only) widen and narrow the search. The call that ends the process is written to stderr.

#include <sys/resource.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <cstdio>
#include <map>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/op_base.h"
#include "strata/core/samples.h"
#include "strata/lab/mutation_test_util.h"
#include "strata/memory/allocator.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace strata::lab {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRounds = 40;
#else
constexpr int kRounds = 150;
#endif
constexpr unsigned kSeconds = 30;              // longest call
constexpr int64_t kMostBytes = 128 << 20;      // of tensors
constexpr int64_t kMostResidentKiB = 1 << 20;  // that one call may add

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// ---- the call that ends the process

char g_call[8192];
size_t g_length = 0;

void say_call() {
  [[maybe_unused]] const ssize_t n = write(2, g_call, g_length);
}
void on_signal(int signal) {
  say_call();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// While one lives, the end of the process or a call that takes too long says which call it was.
class LastWords {
 public:
  LastWords() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(say_call);
    const std::vector<int> signals{SIGALRM, SIGABRT};
#else
    const std::vector<int> signals{SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#endif
    for (const int s : signals) previous_.emplace_back(s, std::signal(s, on_signal));
  }
  ~LastWords() {
    alarm(0);
    for (const auto& [s, handler] : previous_) std::signal(s, handler);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(nullptr);
#endif
  }
  static void about_to(const std::string& call) {
    g_length = std::min(call.size(), sizeof g_call);
    std::copy_n(call.data(), g_length, g_call);
    alarm(kSeconds);
  }

 private:
  std::vector<std::pair<int, void (*)(int)>> previous_;
};

// ---- one call

int64_t resident_peak_kib() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return u.ru_maxrss;
}

std::string text_with_layout(std::span<const Value> args) {
  std::string s = text_of(args);
  visit(args, [&](const Tensor& t) {
    if (t.defined() && (!t.is_contiguous() || !t.device().is_cpu()))
      s += cat("; strides ", t.strides(), " offset ", t.storage_offset(), " ", t.device());
    if (t.defined() && t.requires_grad()) s += cat("; ", t, " wants a gradient");
  });
  return s;
}

// What is wrong with a tensor that an op returned; empty for nothing. Reads every element.
std::string fault(const Tensor& t) {
  if (!t.defined()) return {};
  double n = 1;
  for (const int64_t d : t.shape()) {
    if (d < 0) return cat("a negative size: ", t);
    n *= static_cast<double>(d);
  }
  if (n > 0x1p62 || static_cast<double>(t.numel()) != n) return cat("a size that overflows: ", t);
  if (!t.device().is_cpu() || n == 0) return {};
  int64_t first = t.storage_offset(), last = first;
  for (int i = 0; i < t.shape().size(); ++i) (t.strides()[i] < 0 ? first : last) += (t.shape()[i] - 1) * t.strides()[i];
  if (first < 0 || (last + 1) * size_of(t.dtype()) > static_cast<int64_t>(t.storage()->nbytes))
    return cat("elements outside of the storage: ", t, " strides ", t.strides(), " offset ", t.storage_offset());
  if (n < 1e6) bytes(t);
  return {};
}

struct Tally {
  int results = 0, refusals = 0, gradients = 0;
};

class Fuzzer {
 public:
  Fuzzer(const OpBase& op, uint64_t seed) : op_(op), seed_(seed) {}

  void round(uint64_t number, Tally& tally) {
    uint64_t mixed = seed_ * 1000003 + number;
    for (const char c : op_.name()) mixed = mixed * 131 + static_cast<uint8_t>(c);
    Mutation m(mixed);
    Mutation::Args args;
    try {
      args = m.changed(base(m));
    } catch (const ShapeError&) {  // sizes that no tensor has
      return;
    }
    if (!m.chance(4)) {
      visit(args, [&](const Tensor& t) {
        if (t.defined() && is_floating(t.dtype()) && !m.chance(4)) Tensor(t).set_requires_grad();
      });
    }
    const bool inplace = m.chance(6), autocast = m.chance(8), unrecorded = m.chance(5), twice = m.chance(3);
    call_ = cat("STRATA_FUZZ_SEED=", seed_, " STRATA_FUZZ_OPS=", op_.name(), " STRATA_FUZZ_ROUND=", number, ": ",
                op_.name(), inplace ? "_(" : "(", text_with_layout(args), ")", autocast ? " under autocast" : "",
                unrecorded ? " unrecorded" : "", "\n");
    const int64_t resident = resident_peak_kib();
    LastWords::about_to(call_);
    const auto start = std::chrono::steady_clock::now();
    const AutocastScope cast(DType::bf16, autocast);
    const GradMode mode(!unrecorded);
    std::vector<Value> results;
    bool accepted = attempt("", [&] { results = inplace ? op_.inplace_boxed(args) : op_.call_boxed(args); });
    ++(accepted ? tally.results : tally.refusals);
    if (accepted) {
      if (!inplace && results.size() != op_.schema().results.size()) wrong(cat(results.size(), " results"));
      visit(results, [&](const Tensor& t) { expect_sound(t, "result"); });
      if (!unrecorded) tally.gradients += attempt("its gradient: ", [&] { differentiate(results, args, twice); });
    }
    if (unrecorded && !inplace && !autocast) dry_run(args, accepted, results);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (seconds > kSeconds / 10.0) wrong(cat("took ", seconds, " s"));
    if (resident_peak_kib() - resident > kMostResidentKiB) wrong("made the process grow");
  }

 private:
  Mutation::Args base(Mutation& m) {
    const DType dtype = m.chance(4) ? static_cast<DType>(m.below(kNumDTypes)) : DType::f32;
    auto [entry, fresh] = bases_.try_emplace(dtype);
    if (fresh) {
      Samples s(dtype);
      try {
        op_.samples(s);
      } catch (const Error&) {  // the samples themselves are made with ops that refuse the dtype
      }
      for (const Sample& sample : s.valid) entry->second.push_back(sample.args);
      // Refused ones, once: most are refused before anything interesting happens.
      if (!s.refused.empty()) entry->second.push_back(s.refused[m.below(s.refused.size())].args);
      std::erase_if(entry->second, [](const Mutation::Args& args) {
        double elements = 0;
        visit(args, [&](const Tensor& t) { elements += t.defined() ? static_cast<double>(t.numel()) : 0; });
        return elements > 1e5;
      });
    }
    if (entry->second.empty()) return Mutation::Args(op_.schema().args.size());
    Mutation::Args args = m.pick(entry->second);
    for (size_t i = args.size(); i < op_.schema().args.size() && m.chance(2); ++i)
      args.push_back(op_.schema().args[i].default_value.value_or(std::monostate()));
    return args;
  }

  // Whether `body` succeeds. It may throw an Error that names an op. What the op took, its gradient must take too:
  // there only misuse of the tape, another device and too little memory are errors.
  template <class F>
  bool attempt(std::string_view what, F&& body) {
    try {
      body();
      return true;
    } catch (const Error& e) {
      refused_dtype_ = dynamic_cast<const DTypeError*>(&e) != nullptr;
      if (e.op().empty() || std::string_view(e.what()).size() < e.op().size() + 4) wrong(cat(what, "says: ", e.what()));
      if (!what.empty() && is_about_arguments(e)) wrong(cat(what, "refused: ", e.what()));
    } catch (const std::exception& e) {
      wrong(cat(what, "threw something else than an Error: ", e.what()));
    }
    return false;
  }
  static bool is_about_arguments(const Error& e) {
    // Too little memory, of which a dry run has 64 bits.
    if (std::string_view(e.what()).find("does not fit in 64 bits") != std::string_view::npos) return false;
    return dynamic_cast<const ShapeError*>(&e) || dynamic_cast<const DTypeError*>(&e) ||
           dynamic_cast<const IndexError*>(&e) || dynamic_cast<const ValueError*>(&e);
  }
  void wrong(const std::string& text) { ADD_FAILURE() << text << "\n  " << call_; }
  void expect_sound(const Tensor& t, const char* what) {
    const std::string f = fault(t);
    if (!f.empty()) wrong(cat(what, " with ", f));
  }

  // What the op takes, and which dtypes it refuses, does not depend on values: on the meta device it is the same.
  void dry_run(std::span<const Value> args, bool accepted, std::span<const Value> results) {
    bool here = !op_.is_dynamic() && !op_.is_view();  // those ask strides and storage, which meta tensors do not have
    here = here && op_.name() != "linalg_lstsq";      // a dry run takes ranks as full, which residuals depend on
    visit(args, [&](const Tensor& t) { here = here && (!t.defined() || t.device().is_cpu()); });
    for (const auto& a : op_.schema().args) here = here && a.type.kind != SchemaType::device;  // it would run there
    if (!here || (!accepted && !refused_dtype_)) return;
    Mutation::Args dry;
    try {
      dry = map(args, [](const Tensor& t) { return empty({t.shape(), t.dtype(), Device::meta(), std::nullopt}); });
    } catch (const ShapeError&) {  // a view without elements may have sizes that no row-major tensor has
      return;
    }
    const DeviceScope on(Device::meta());
    std::vector<Tensor> got;
    try {
      got = tensors_of(op_.call_boxed(dry));
    } catch (const DeviceError&) {  // it reads values
      return;
    } catch (const Error& e) {
      if (accepted) wrong(cat("a dry run refuses it: ", e.what()));
      return;
    }
    if (!accepted) return wrong("a dry run takes a dtype that is refused");
    const std::vector<Tensor> wanted = tensors_of(results);
    if (got.size() != wanted.size()) return wrong(cat("a dry run gives ", got.size(), " results"));
    for (size_t i = 0; i < got.size(); ++i) {
      const bool both = got[i].defined() && wanted[i].defined();
      if (both ? got[i].shape() != wanted[i].shape() || got[i].dtype() != wanted[i].dtype()
               : got[i].defined() != wanted[i].defined())
        wrong(cat("a dry run gives ", got[i], " instead of ", wanted[i]));
    }
  }

  void differentiate(std::span<const Value> results, std::span<const Value> args, bool twice) {
    TensorList outputs, ones, inputs;
    visit(args, [&](const Tensor& t) {
      if (t.defined() && t.requires_grad() && t.is_leaf()) inputs.push_back(t);
    });
    visit(results, [&](const Tensor& t) {
      if (t.defined() && t.requires_grad()) outputs.push_back(t);
    });
    for (int pass = 0; pass < (twice ? 2 : 1) && !outputs.empty() && !inputs.empty(); ++pass) {
      ones.clear();
      for (const Tensor& y : outputs) {
        const Tensor one = empty({y.shape(), y.dtype(), y.device(), std::nullopt});
        ones.push_back(one.is_meta() || one.numel() > kMostBytes / 8 ? one : Tensor(one).fill_(1));
      }
      const TensorList gradients = grad(outputs, inputs, ones, twice, false, true);
      outputs.clear();
      for (size_t i = 0; i < gradients.size(); ++i) {
        const Tensor &g = gradients[i], &x = inputs[i];
        if (!g.defined()) continue;
        expect_sound(g, "gradient");
        if (g.shape() != x.shape() || g.dtype() != x.dtype() || !(g.device() == x.device()))
          wrong(cat("the gradient of ", x, " is ", g));
        if (g.requires_grad()) outputs.push_back(g);
      }
    }
  }

  const OpBase& op_;
  uint64_t seed_;
  std::string call_;
  bool refused_dtype_ = false;  // by the last call that was refused
  std::map<DType, std::vector<Mutation::Args>> bases_;
};

TEST(Arguments, ThatMakeNoSenseAreRefused) {
  const uint64_t rounds = setting("STRATA_FUZZ_ROUNDS", kRounds), seed = setting("STRATA_FUZZ_SEED", 1);
  const char* names = std::getenv("STRATA_FUZZ_OPS");
  const bool one = std::getenv("STRATA_FUZZ_ROUND") != nullptr;
  const uint64_t first = setting("STRATA_FUZZ_ROUND", 0), last = one ? first + 1 : rounds;
  const LastWords words;
  const int64_t limit = memory::set_limit(memory::stats(DeviceType::cpu).live_total + kMostBytes);
  Tally tally;
  int ops = 0;
  for (const OpBase* op : OpBase::all()) {
    if (op->name().starts_with("test_")) continue;  // some here write where they must not
    if (names && cat(",", names, ",").find(cat(",", op->name(), ",")) == std::string::npos) continue;
    ++ops;
    Fuzzer fuzzer(*op, seed);
    for (uint64_t i = first; i < last; ++i) fuzzer.round(i, tally);
  }
  memory::set_limit(limit);
  RecordProperty("results", tally.results);
  RecordProperty("refusals", tally.refusals);
  RecordProperty("gradients", tally.gradients);
  EXPECT_GT(ops, 0);
  if (names || one) return;
  // Neither all nothing nor all refused: the calls reach what they are meant to.
  const int calls = tally.results + tally.refusals;
  EXPECT_GT(ops, 250);
  EXPECT_GT(tally.results, calls / 10);
  EXPECT_GT(tally.refusals, calls / 10);
  EXPECT_GT(tally.gradients, calls / 20);
}

}  // namespace
}  // namespace strata::lab
