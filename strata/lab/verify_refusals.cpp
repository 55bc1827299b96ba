// What must be refused: the record's invalid samples, values that make no sense, other dtypes. Refused means an Error
// of ours; anything else that is thrown, and of course a crash, is a failure.

#include <cmath>
#include <limits>
#include <typeinfo>

#include "strata/core/node.h"
#include "strata/lab/verifier.h"

namespace strata::lab {
namespace {

Tensor meta_of(const Tensor& t) {
  return empty({t.shape(), t.dtype(), Device::meta(), std::nullopt});
}

// Values of the same type that are unlikely to make sense.
std::vector<Value> absurd(const Value& v) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  if (std::holds_alternative<int64_t>(v)) return {int64_t{-1}, int64_t{0}, int64_t{63}, most, least, least + 1};
  if (std::holds_alternative<double>(v)) return {-1.0, 0.0, 1e300, double(INFINITY), double(NAN)};
  if (std::holds_alternative<Scalar>(v))
    return {Scalar(0), Scalar(most), Scalar(least), Scalar(double(NAN)), Scalar(true)};
  if (const Dims* d = std::get_if<Dims>(&v)) {
    std::vector<Value> r{
        Dims(), Dims{-1}, Dims{0}, Dims{0, 0}, Dims{most, most}, Dims{least}, Dims::filled(kMaxDims, 7)};
    if (!d->empty()) {
      Dims longer = *d, shifted = *d;
      if (longer.size() < kMaxDims) longer.push_back(1);
      shifted[0] = most;
      r.insert(r.end(), {longer, shifted});
    }
    return r;
  }
  return {};
}

}  // namespace

void Verifier::refused_sample(const InvalidSample& sample, DType dtype) {
  const Sample shown{sample.args, "refusal", false, false};
  try {
    call(sample.args);
  } catch (const Error& e) {
    const std::string text = e.what();
    attempt(Check::invalid, shown, dtype, [&] {
      expect(std::type_index(typeid(e)) == sample.error, "threw another class of error than the sample says: ", text);
      expect(text.find(sample.message) != std::string::npos, "the error does not contain '", sample.message,
             "': ", text);
      expect(!e.op().empty(), "the error does not name an op: ", text);
    });
    return;
  } catch (const std::exception& e) {
    return fail(Check::invalid, shown, dtype, std::string("threw something else than an Error: ") + e.what());
  }
  fail(Check::invalid, shown, dtype, "was accepted; wanted an error with '" + sample.message + "'");
}

void Verifier::absurd_arguments(const Sample& sample) const {
  for (size_t i = 0; i < sample.args.size(); ++i) {
    for (const Value& value : absurd(sample.args[i])) {
      // First where nothing is allocated; then for real, if the results are small.
      Args args = map(sample.args, meta_of);
      args[i] = value;
      for (Value& v : args)
        if (Device* d = std::get_if<Device>(&v)) *d = Device::meta();
      double size = 0;
      try {
        NoGrad guard;
        DeviceScope device(Device::meta());
        visit(op_.call_boxed(args),
              [&](const Tensor& t) { size += t.defined() ? static_cast<double>(t.nbytes()) : 0; });
      } catch (const Error&) {
        continue;
      } catch (const std::exception& e) {
        expect(false, "argument ", i, " = ", text_of(value),
               " (dry run) threw something else than an Error: ", e.what());
      }
      if (size > 1e6) continue;
      args = sample.args;
      args[i] = value;
      try {
        for (const Tensor& t : call(args)) {
          if (!t.defined()) continue;
          double n = 1;
          for (const int64_t d : t.shape()) n *= static_cast<double>(d);
          expect(n < 0x1p62, "argument ", i, " = ", text_of(value), " gives a result whose size overflows: ", t);
          if (n < 1e6) bytes(t);
        }
      } catch (const Error&) {
        continue;
      } catch (const std::exception& e) {
        expect(false, "argument ", i, " = ", text_of(value), " threw something else than an Error: ", e.what());
      }
    }
  }
}

void Verifier::wrong_types(const Args& args) const {
  const auto refused = [&](const Args& bad, std::string_view what) {
    try {
      call(bad);
    } catch (const Error&) {
      return;
    }
    expect(false, what, " was accepted");
  };
  Args many = args;
  many.resize(op_.schema().args.size() + 1, Value(int64_t{1}));
  refused(many, "one argument too many");
  for (size_t i = 0; i < args.size(); ++i) {
    Args bad = args;
    bad[i] = std::string("no such thing");
    if (!std::holds_alternative<std::string>(args[i]))
      refused(bad, cat("a string for argument '", op_.schema().args[i].name, "'"));
    if (!std::holds_alternative<Tensor>(args[i]) || !std::get<Tensor>(args[i]).defined()) continue;
    if (op_.schema().args[i].type == SchemaType{SchemaType::tensor}) {
      bad[i] = std::monostate();
      refused(bad, cat("None for the tensor '", op_.schema().args[i].name, "'"));
    }
  }
  // One argument elsewhere than the others.
  if (op_.is_view() || tensors_of(args).size() < 2) return;
  for (size_t i = 0; i < args.size(); ++i) {
    const Tensor* t = std::get_if<Tensor>(&args[i]);
    if (!t || !t->defined()) continue;
    Args bad = args;
    bad[i] = meta_of(*t);
    size_t defined = 0;
    visit(args, [&](const Tensor& x) { defined += x.defined(); });
    if (defined >= 2) refused(bad, cat("argument '", op_.schema().args[i].name, "' on another device"));
  }
}

// Another dtype than the record's own is refused, or right: never a crash, never silently wrong.
void Verifier::other_dtype(DType dtype) {
  Samples samples(dtype);
  try {
    op_.samples(samples);
  } catch (const std::exception&) {
    return;  // the samples themselves are made with ops that refuse it
  }
  for (const Sample& sample : samples.valid) {
    const auto refused = [&](auto&& body) {
      try {
        body();
      } catch (const Error&) {
        return true;
      }
      return false;
    };
    attempt(Check::invalid, sample, dtype, [&] {
      std::vector<Tensor> got;
      if (refused([&] { got = call(sample.args); })) return;
      Reference want;
      if (refused([&] { want = reference(sample.args, dtype); })) return;
      // Numbers that leave the range of f32 on the way say nothing.
      for (const Tensor& t : want.results)
        for (const double v : values(t))
          if (!(std::abs(v) < 1e30)) return;
      expect_close(got, want.results, sample.args);
      meta(sample.args);
    });
  }
}

}  // namespace strata::lab
