// Plugins that are right, and plugins that are wrong in every way that the interface knows: each gives a clear error.

#include "strata/c/plugin.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "strata/c/strata.h"
#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/io/temp_dir.h"
#include "strata/lab/reference.h"
#include "strata/lab/verify.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// The misbehaving plugin under the name that says how it misbehaves.
std::string variant(const std::string& name) {
  static const io::TempDir dir;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::string path = dir.path() + "/" + name + ".so";
  if (!fs::exists(path)) fs::copy_file(STRATA_TEST_PLUGIN, path);
  return path;
}
std::string refusal(const std::string& name) {
  const size_t before = OpBase::all().size();
  std::string text = message<PluginError>([&] { load_plugin(variant(name)); });
  EXPECT_EQ(OpBase::all().size(), before) << name;
  EXPECT_EQ(OpBase::find("test_" + name), nullptr) << name;
  return text;
}
void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nwanted: " << part;
}

const OpBase& op(const std::string& name) {
  load_plugin(variant(name));
  const OpBase* found = OpBase::find("test_" + name);
  if (!found) throw std::runtime_error("not registered: " + name);
  return *found;
}
Tensor sample(DType dtype = DType::f32) {
  const std::vector<float> v{1, -2, 3, 4, 5, -6};
  return from_span<float>(v, {2, 3}).to(dtype);
}
Tensor call(const OpBase& o, const Tensor& x, double factor) {
  return std::get<Tensor>(o.call_boxed(std::vector<Value>{x, factor})[0]);
}
Tensor call(const std::string& name) {
  return call(op(name), sample(), 3);
}

// ---- loading

TEST(Plugin, FilesThatAreNone) {
  expect_contains(message<PluginError>([] { load_plugin("/no/such/plugin.so"); }),
                  "cannot open /no/such/plugin.so: No such file");
  expect_contains(message<PluginError>([] { load_plugin("/tmp"); }), "/tmp is not a file");
  const io::TempDir here;
  const std::string text = here.path() + "/text.so";
  std::ofstream(text) << "this is no library\n";
  expect_contains(message<PluginError>([&] { load_plugin(text); }), "this is no shared library that can be loaded");
  Dl_info libc;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&std::abort), &libc), 0);
  const std::string library = fs::exists(libc.dli_fname) ? libc.dli_fname : "/proc/self/exe";
  const std::string none = message<PluginError>([&] { load_plugin(library); });
  EXPECT_TRUE(none.find("it has no symbol strata_plugin_entry") != std::string::npos ||
              none.find("no shared library that can be loaded") != std::string::npos)
      << none;
}

TEST(Plugin, RefusedWithTheReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"entry_throws", "strata_plugin_entry threw a C++ exception: thrown in the entry"},
      {"entry_throws_int", "strata_plugin_entry threw a C++ exception"},
      {"entry_null", "the plugin refuses to load: it gave no reason"},
      {"entry_refuses", "the plugin refuses to load: this machine has no left-handed screwdriver"},
      {"no_version_member", "strata_plugin.struct_size is 8, version 1 has 48 bytes"},
      {"version", "the plugin was compiled for version 7 of strata.h, this program has version 1; compile it again"},
      {"small_plugin", "strata_plugin.struct_size is 24, version 1 has 48 bytes"},
      {"no_name", "the plugin has no name"},
      {"no_records", "the plugin has no records"},
      {"null_record", "record 0 is NULL"},
      {"small_record", "record 0: strata_op_record.struct_size is 64, version 1 has "},
      {"no_schema", "record 0 has no schema"},
      {"no_doc", "has no doc"},
      {"schema_text", "expected ')' at position 26 of: test_schema_text(Tensor x -> Tensor"},
      {"schema_name", "expected '('"},
      {"schema_type", "expected 'a type (Tensor, int, float, ...)'"},
      {"optional_text", "an argument of type 'str?' is not supported"},
      {"unnamed", "argument 0 has no name"},
      {"same_names", "two arguments are called 'x'"},
      {"result_type", "every result must be a Tensor, not Tensor[]"},
      {"default_type", "the default of argument 'n' is not of type int"},
      {"default_order", "argument 'm' needs a default"},
      {"list_gradient", "a record with a backward cannot take Tensor[] (argument 'xs')"},
      {"name_taken", "relu: there is an op of this name already"},
      {"name_twice", "test_name_twice: the name comes twice"},
      {"saves", "saves 'z', which is neither an argument nor a result"},
      {"adapt", "there is no strata_adapt 5"},
      {"autocast", "there is no strata_autocast -1"},
      {"dtypes", "dtypes must name some of the strata_dtypes (STRATA_FLOATS), got 1024"},
      {"tolerance", "a tolerance above 1 needs a tolerance_reason"},
      {"no_infer", "the record has no infer"},
      {"no_kernel", "the record has no kernel"},
      {"inplace", "inplace needs a first argument of type Tensor and one result"},
      {"second_bad", "record 1 is refused"},
  };
  for (const auto& [name, text] : cases) {
    SCOPED_TRACE(name);
    const std::string got = refusal(name);
    expect_contains(got, text);
    EXPECT_TRUE(got.starts_with("load_plugin: ")) << got;
  }
}

TEST(Plugin, SameFileTwiceIsOne) {
  const Plugin& first = load_plugin(variant("right"));
  const size_t records = OpBase::all().size();
  EXPECT_EQ(&load_plugin(variant("right")), &first);
  EXPECT_EQ(OpBase::all().size(), records);
  EXPECT_EQ(first.name, "test_plugin");
  EXPECT_EQ(first.version, "0.5");
  ASSERT_EQ(first.ops.size(), 1u);
  EXPECT_EQ(first.ops[0]->name(), "test_right");
  EXPECT_EQ(first.ops[0]->family(), "test_plugin");
  const std::vector<const Plugin*> all = loaded_plugins();
  EXPECT_NE(std::find(all.begin(), all.end(), &first), all.end());
}

// ---- an ordinary op

TEST(Plugin, CallsAndGradients) {
  const OpBase& right = op("right");
  Tensor x = sample();
  x.set_requires_grad();
  const Tensor y = call(right, x, 3);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{3, -6, 9, 12, 15, -18}));
  ASSERT_TRUE(y.grad_fn());
  EXPECT_EQ(y.grad_fn()->name(), "test_right");
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(6, 3));
  // The default, and an int where a float is wanted.
  EXPECT_EQ(std::get<Tensor>(right.call_boxed(std::vector<Value>{x})[0]).to_vector<float>()[0], 2);
  EXPECT_EQ(std::get<Tensor>(right.call_boxed(std::vector<Value>{x, int64_t{4}})[0]).to_vector<float>()[0], 4);
  // Strided, empty, and a dry run.
  EXPECT_EQ(call(right, sample().t(), 2).to_vector<float>(), (std::vector<float>{2, 8, -4, 10, 6, -12}));
  EXPECT_EQ(call(right, sample().slice(0, 0, 0), 2).shape(), Shape({0, 3}));
  const Tensor dry = call(right, empty({{5, 7}, DType::f64, Device::meta(), std::nullopt}), 2);
  EXPECT_TRUE(dry.is_meta());
  EXPECT_EQ(dry.shape(), Shape({5, 7}));
}

TEST(Plugin, InPlaceOverAnyLayout) {
  const OpBase& inplace = op("in_place_right");
  Tensor x = sample();
  inplace.inplace_boxed(std::vector<Value>{x, 2.0});
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, -4, 6, 8, 10, -12}));
  EXPECT_EQ(x.version(), 1u);
  Tensor column = x.select(1, 0);
  inplace.inplace_boxed(std::vector<Value>{column, 10.0});
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{20, -4, 6, 80, 10, -12}));
  Tensor leaf = sample().set_requires_grad();
  expect_contains(message<AutogradError>([&] { inplace.inplace_boxed(std::vector<Value>{leaf, 2.0}); }), "leaf");
  const Tensor y = leaf.clone();
  inplace.inplace_boxed(std::vector<Value>{y, 5.0});
  y.sum().backward();
  EXPECT_EQ(leaf.grad().to_vector<float>(), std::vector<float>(6, 5));
  expect_contains(message<ValueError>([&] {
                    op("right").inplace_boxed(std::vector<Value>{x, 2.0});
                  }),
                  "has no in-place form");
}

TEST(Plugin, SeveralResults) {
  Tensor x = sample();
  x.set_requires_grad();
  const std::vector<Value> both = op("two_results").call_boxed(std::vector<Value>{x, 3.0});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(std::get<Tensor>(both[1]).to_vector<float>()[0], -3);
  std::get<Tensor>(both[1]).sum().backward({}, /*retain_graph=*/true);  // no gradient arrives at the first
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(6, -3));
  std::get<Tensor>(both[0]).sum().backward({}, true);
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(6, 0));
}

TEST(Plugin, AutocastAndAdapting) {
  const Tensor low = sample(DType::bf16);
  const OpBase& full = op("full_precision");
  EXPECT_THROW(call(full, low, 2), DTypeError);
  {
    AutocastScope scope(DType::bf16);
    EXPECT_EQ(call(full, low, 2).dtype(), DType::f32);
  }
  const Tensor y = call(op("takes_integers"), sample(DType::i64), 2);
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{2, -4, 6, 8, 10, -12}));
}

TEST(Plugin, RegistersWhileOthersLook) {
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  readers.reserve(3);
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      while (!done) {
        EXPECT_NE(OpBase::find("relu"), nullptr);
        EXPECT_EQ(OpBase::find("no_such_op"), nullptr);
        EXPECT_GT(OpBase::all().size(), 250u);
      }
    });
  std::vector<std::thread> loaders;
  loaders.reserve(8);
  for (int i = 0; i < 8; ++i) loaders.emplace_back([i] { load_plugin(variant("many_" + std::to_string(i))); });
  for (std::thread& t : loaders) t.join();
  done = true;
  for (std::thread& t : readers) t.join();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(call(op("many_" + std::to_string(i)), sample(), 2).to_vector<float>()[0], 2);
}

struct Counting final : CallObserver {
  void before(const Call& c) override { seen += c.op.name() == "test_right"; }
  void after(const Call&, std::span<const Tensor> results) override { given += results.size(); }
  size_t seen = 0, given = 0;
};
TEST(Plugin, IsSeenByObservers) {
  const OpBase& right = op("right");
  Counting counting;
  {
    ObserverScope scope(counting);
    call(right, sample(), 2);
  }
  EXPECT_EQ(counting.seen, 1u);
  EXPECT_EQ(counting.given, 1u);  // what the kernel calls is not observed
}

TEST(Plugin, WrongArguments) {
  const OpBase& right = op("right");
  expect_contains(message<ValueError>([&] { right.call_boxed(std::vector<Value>{}); }), "argument 'x' is missing");
  expect_contains(message<ValueError>([&] { right.call_boxed(std::vector<Value>{1.0}); }),
                  "argument 'x' must be of type Tensor");
  expect_contains(message<ValueError>([&] { right.call_boxed(std::vector<Value>{Tensor()}); }),
                  "argument 'x' must be of type Tensor");
  expect_contains(message<ValueError>([&] {
                    right.call_boxed(std::vector<Value>{sample(), true});
                  }),
                  "argument 'factor' must be of type float");
  expect_contains(message<ValueError>([&] {
                    right.call_boxed(std::vector<Value>{sample(), 1.0, 2.0});
                  }),
                  "takes at most 2 arguments, got 3");
}

TEST(Plugin, IsListedAndTold) {
  const OpBase& right = op("right");
  expect_contains(lab::page(right), "test_plugin (a plugin)");
  expect_contains(lab::list({&right}), "test_right");
  EXPECT_EQ(right.cost_boxed(std::vector<Value>{sample()}).flops, 3);
}

// ---- misbehaviour in calls

TEST(Plugin, InferThatFailsOrLies) {
  const std::string ours = "the plugin's infer says that result 0 ";
  expect_contains(
      message<PluginError>([] { call("infer_throws"); }),
      "test_infer_throws: the plugin's infer threw a C++ exception, it must return a status: thrown in infer");
  expect_contains(message<PluginError>([] { call("infer_throws_int"); }), "infer threw a C++ exception");
  EXPECT_EQ(message<ShapeError>([] { call("infer_fails"); }), "test_infer_fails: no shape is good enough");
  expect_contains(message<ShapeError>([] { call("infer_fails_silently"); }), "infer failed and gave no reason");
  expect_contains(message<PluginError>([] { call("infer_status"); }), "status 77, which is no strata_status");
  expect_contains(message<PluginError>([] { call("infer_says_nothing"); }), ours + "has -1 dimensions");
  expect_contains(message<PluginError>([] { call("infer_ndim"); }), ours + "has 9 dimensions, 0 to 8 are possible");
  expect_contains(message<PluginError>([] { call("infer_negative"); }), ours + "has the shape [-3, 3]");
  expect_contains(message<PluginError>([] { call("infer_dtype"); }), ours + "has the strata_dtype 10");
  expect_contains(message<PluginError>([] { call("infer_overflow"); }), "does not fit in 64 bits");
  expect_contains(message<MemoryError>([] { call("infer_huge"); }), "memory");
  expect_contains(message<PluginError>([] { call("infer_device"); }), ours + "is on a device that does not exist");
  expect_contains(message<PluginError>([] { call("infer_other_device"); }),
                  ours + "is on meta, but the arguments are on cpu");
}

TEST(Plugin, KernelThatFails) {
  expect_contains(message<PluginError>([] { call("kernel_throws"); }),
                  "the plugin's cpu kernel threw a C++ exception, it must return a status: thrown in the kernel");
  EXPECT_EQ(message<IndexError>([] { call("kernel_fails"); }), "test_kernel_fails: out of fingers");
  expect_contains(message<ValueError>([] { call("kernel_calls_badly"); }), "test_kernel_calls_badly: matmul: argument");
  EXPECT_TRUE(grad_enabled());  // the mode within a kernel does not stay
}

TEST(Plugin, BackwardThatFails) {
  const auto run = [](const char* name) {
    Tensor x = sample().set_requires_grad();
    call(op(name), x, 2).sum().backward();
  };
  expect_contains(message<PluginError>([&] { run("backward_throws"); }),
                  "the plugin's backward threw a C++ exception, it must return a status: thrown in backward");
  expect_contains(message<AutogradError>([&] { run("backward_fails"); }), "test_backward_fails: no way back");
  expect_contains(message<PluginError>([&] { run("backward_shape"); }),
                  "the plugin's backward gives a gradient [1] f32 of argument 'x', which is [2, 3] f32");
}

struct Interrupted {};
struct Interrupting final : CallObserver {
  void before(const Call& c) override {
    if (c.op.name() == "add") throw Interrupted();
  }
};
TEST(Plugin, ForeignExceptionsPassThrough) {
  Tensor x = sample().set_requires_grad();
  const Tensor loss = std::get<Tensor>(op("two_results").call_boxed(std::vector<Value>{x, 3.0})[0]).sum();
  Interrupting interrupting;
  ObserverScope scope(interrupting);
  EXPECT_THROW(loss.backward(), Interrupted);  // out of the op that the plugin's backward calls
}

TEST(Plugin, CostAndSamplesThatFail) {
  expect_contains(message<PluginError>([] { op("cost_throws").cost_boxed(std::vector<Value>{sample()}); }),
                  "the plugin's cost threw a C++ exception, it must return a status: thrown in cost");
  EXPECT_FALSE(lab::verify(op("samples_throw")).ok());
  const auto samples_failure = [](const char* name) {
    const lab::OpReport report = lab::verify(op(name));
    return report.failures.empty() ? std::string("no failure") : report.failures[0].message;
  };
  expect_contains(samples_failure("samples_throw"), "thrown in samples");
  expect_contains(samples_failure("samples_shape"), "a tensor has 0 to 8 dimensions, got 12");
  expect_contains(samples_failure("samples_type"), "argument 'factor' must be of type float");
}

// ---- the verification

TEST(PluginVerification, PassesTheRightOne) {
  for (const char* name : {"right", "in_place_right"}) {
    const lab::OpReport r = lab::verify(op(name));
    EXPECT_TRUE(r.ok()) << lab::table({r});
    for (const lab::Check c : {lab::Check::forward, lab::Check::memory, lab::Check::strided, lab::Check::empty,
                               lab::Check::meta, lab::Check::gradient, lab::Check::second})
      EXPECT_GT(r.passed[static_cast<size_t>(c)], 0) << lab::name_of(c);
  }
}

TEST(PluginVerification, CatchesWritesOutOfBounds) {
  for (const auto& [name, text] :
       {std::pair("overrun", " bytes past the end of result 0"),
        std::pair("far_overrun", " bytes past the end of result 0"), std::pair("underrun", " bytes before result 0")}) {
    const lab::OpReport r = lab::verify(op(name));
    EXPECT_FALSE(r.ok());
    expect_contains(lab::table({r}), text);
  }
}

TEST(PluginVerification, CatchesAWrongGradient) {
  const lab::OpReport r = lab::verify(op("wrong_gradient"));
  EXPECT_GT(r.failed[static_cast<size_t>(lab::Check::gradient)], 0) << lab::table({r});
}

// ---- from C

TEST(Plugin, LoadsFromC) {
  EXPECT_EQ(strata_plugin_load(variant("from_c").c_str()), STRATA_OK);
  EXPECT_NE(strata_op_find("test_from_c"), nullptr);
  EXPECT_EQ(strata_plugin_load("/no/such/plugin.so"), STRATA_PLUGIN_ERROR);
  expect_contains(strata_error_text(), "cannot open /no/such/plugin.so");
  EXPECT_EQ(strata_plugin_load(nullptr), STRATA_VALUE_ERROR);
}

}  // namespace
}  // namespace strata
