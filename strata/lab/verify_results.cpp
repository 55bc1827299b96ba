// Checks of one sample's results: values, memory, layouts, sizes of 0, the dry run, and the other forms of the call.

#include <algorithm>

#include "strata/lab/verifier.h"
#include "strata/memory/allocator.h"
#include "strata/memory/poison.h"

namespace strata::lab {
namespace {

bool is_result_fresh(const Tensor& result, std::span<const Value> args) {
  bool fresh = result.storage()->release == nullptr && result.device().is_cpu();
  visit(args, [&](const Tensor& t) { fresh = fresh && !(t.defined() && t.storage() == result.storage()); });
  return fresh;
}

}  // namespace

void Verifier::forward(const Args& args, const Reference& want) {
  const std::vector<Tensor> inputs = tensors_of(args);
  const std::vector<std::string> before = bytes(inputs);
  const std::vector<Tensor> got = call(args);
  const std::vector<std::string> after = bytes(inputs);
  for (size_t i = 0; i < before.size(); ++i) expect(before[i] == after[i], "the call wrote to tensor argument ", i);
  expect_close(got, want.results, args);
}

void Verifier::memory(const Args& args) {
  std::vector<std::string> first;
  // NaN in every floating dtype, then small numbers: what a kernel does not write, or reads without having written,
  // differs.
  for (const int pattern : {0xff, 0x2a}) {
    memory::PoisonScope poison(static_cast<uint8_t>(pattern));
    const std::vector<Tensor> got = call(args);
    for (size_t i = 0; i < got.size(); ++i) {
      if (!is_result_fresh(got[i], args)) continue;
      const Storage& s = *got[i].storage();
      for (size_t at = s.nbytes; s.nbytes > 0 && at < memory::block_size(s.nbytes); ++at)
        expect(static_cast<uint8_t>(s.data[at]) == pattern, "the kernel wrote ", at - s.nbytes,
               " bytes past the end of result ", i);
    }
    if (first.empty()) {
      first = bytes(got);
      continue;
    }
    const std::vector<std::string> second = bytes(got);
    for (size_t i = 0; i < first.size(); ++i) {
      if (first[i] == second[i]) continue;
      const auto at = static_cast<int64_t>(std::mismatch(first[i].begin(), first[i].end(), second[i].begin()).first -
                                           first[i].begin());
      expect(false, "result ", i, " ", got[i], " depends on what was in memory before, from element ",
             at / size_of(got[i].dtype()),
             " on: the kernel leaves elements unwritten, or reads workspace that it did not fill");
    }
  }
}

void Verifier::strided(const Args& args, const Reference& want) {
  // A view of one's own strides has no meaning over other strides.
  const auto& schema = op_.schema().args;
  if (op_.is_view() &&
      std::any_of(schema.begin(), schema.end(), [](const SchemaArg& a) { return a.name == "strides"; }))
    return;
  if (op_.is_view()) return strided_views(args);
  expect_close(call(map(args, reversed_storage)), want.results, args);
  expect_close(call(map(args, every_second)), want.results, args);
  // Along its largest dimension each floating argument repeats one element: other values, so compared with dense ones.
  const Args expanded = map(args, [](const Tensor& t) {
    if (!is_floating(t.dtype()) || t.numel() < 2) return t;
    const int64_t d = std::max_element(t.shape().begin(), t.shape().end()) - t.shape().begin();
    const Tensor x = dense_copy(t);
    Strides strides = x.strides();
    strides[d] = 0;
    return alias(x, x.shape(), strides, 0);
  });
  std::vector<Tensor> dense;
  try {
    dense = call(map(expanded, dense_copy));
  } catch (const Error&) {
    // A matrix of equal rows has no inverse: refused in one layout, refused in the other.
    bool refused = false;
    try {
      call(expanded);
    } catch (const Error&) {
      refused = true;
    }
    return expect(refused, "takes strided arguments that it refuses as dense ones");
  }
  expect_close(call(expanded), dense, expanded, 2);
}

// A view of strided arguments is right when it shows the same elements, or says that it cannot be had.
void Verifier::strided_views(const Args& args) {
  const std::vector<std::string> want = bytes(call(args));
  for (const auto layout : {reversed_storage, every_second}) {
    std::vector<Tensor> got;
    try {
      got = call(map(args, layout));
    } catch (const ShapeError&) {
      continue;
    }
    expect(bytes(got) == want, "shows other elements when the argument is strided");
  }
}

void Verifier::empty_arguments(const Args& args) {
  // Sizes that several arguments share usually belong together: one such size becomes 0 in all of them.
  std::vector<int64_t> sizes;
  visit(args, [&](const Tensor& t) {
    if (t.defined()) sizes.insert(sizes.end(), t.shape().begin(), t.shape().end());
  });
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (const int64_t size : sizes) {
    if (size == 0) continue;
    Args emptied = map(args, [&](const Tensor& t) {
      Shape s = t.shape();
      for (int64_t& n : s)
        if (n == size) n = 0;
      return s == t.shape() ? t : empty({s, t.dtype(), Device::cpu(), std::nullopt});
    });
    for (Value& v : emptied) {
      if (Dims* d = std::get_if<Dims>(&v); d && *d != Dims{size})
        for (int64_t& n : *d)
          if (n == size && size > 1) n = 0;
    }
    try {
      if (!options_.device.is_cpu()) refused_on_cpu(emptied);
      const std::vector<Tensor> got = call(emptied);
      if (!op_.is_dynamic() && options_.device.is_cpu()) meta(emptied);
      for (const Tensor& t : got)
        if (t.defined()) values(t);
    } catch (const Error&) {
      // Refused: also right. Anything else is not.
    }
  }
}

void Verifier::meta(const Args& args) const {
  const auto as_meta = [](const Tensor& t) {
    TensorMeta m = t.meta();
    m.device = Device::meta();
    m.strides = t.strides();
    return empty(m);
  };
  Args dry = map(args, as_meta);
  for (Value& v : dry)
    if (Device* d = std::get_if<Device>(&v)) *d = Device::meta();
  NoGrad guard;
  DeviceScope device(Device::meta());
  std::vector<Tensor> inferred;
  try {
    inferred = tensors_of(op_.call_boxed(dry));
  } catch (const DeviceError&) {
    if (op_.is_dynamic()) return;  // sizes that depend on values cannot be inferred; saying so is right
    throw;
  }
  DeviceScope real(Device::cpu());
  const std::vector<Tensor> got = call(args);
  expect(got.size() == inferred.size(), "infers ", inferred.size(), " results, computes ", got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (!got[i].defined() || !inferred[i].defined()) {
      expect(got[i].defined() == inferred[i].defined(), "result ", i, " is ", got[i], ", inferred as ", inferred[i]);
      continue;
    }
    expect(inferred[i].is_meta(), "result ", i, " of meta arguments is on ", inferred[i].device());
    expect(got[i].shape() == inferred[i].shape() && got[i].dtype() == inferred[i].dtype(), "result ", i, " is ", got[i],
           ", inferred as ", inferred[i]);
  }
}

void Verifier::boxed(const Args& args) const {
  NoGrad guard;
  const std::vector<Value> results = op_.call_boxed(args);
  const Schema& schema = op_.schema();
  expect(results.size() == schema.results.size(), "the schema promises ", schema.results.size(),
         " results, the call gives ", results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const bool list = schema.results[i].type.kind == SchemaType::tensors;
    expect(list ? std::holds_alternative<TensorList>(results[i]) : std::holds_alternative<Tensor>(results[i]),
           "result ", i, " is not of the schema's type ", schema.results[i].type.text());
  }
  // All arguments spelled out, then those that equal their default left out.
  Args full = args;
  for (size_t i = full.size(); i < schema.args.size(); ++i) {
    expect(schema.args[i].default_value || schema.args[i].type.optional, "the sample lacks argument '",
           schema.args[i].name, "'");
    full.push_back(schema.args[i].default_value.value_or(std::monostate()));
  }
  expect(bytes(tensors_of(op_.call_boxed(full))) == bytes(tensors_of(results)),
         "the schema's defaults, spelled out, give another result");
}

void Verifier::view(const Args& args) const {
  const Tensor first = tensors_of(args).front();
  for (const Tensor& r : call(args))
    expect(r.storage() == first.storage(), "a view op's result has storage of its own");
}

void Verifier::inplace(const Args& args) const {
  const std::vector<Tensor> plain = call(args);
  Args own = args;
  own[0] = dense_copy(std::get<Tensor>(own[0]));
  own = on_device(own);
  const Tensor self = std::get<Tensor>(own[0]);
  const bool fits = plain[0].shape() == self.shape() && plain[0].dtype() == self.dtype();
  const uint32_t version = self.version();
  NoGrad guard;
  if (!fits) {
    try {
      op_.inplace_boxed(own);
    } catch (const Error&) {
      return;
    }
    expect(false, "wrote a result ", plain[0], " over ", self, " without an error");
  }
  DeviceScope scope(options_.device);
  const Tensor got = std::get<Tensor>(op_.inplace_boxed(own)[0]);
  expect(got.storage() == self.storage(), "the in-place form returns other storage");
  expect(got.version() > version, "the in-place form does not count its write: version stays ", version);
  const Difference d = compare(got.to(Device::cpu()), plain[0], {});
  expect(d.ratio <= 0, "in place, element ", d.index, " is ", d.got, ", otherwise ", d.want);
}

}  // namespace strata::lab
