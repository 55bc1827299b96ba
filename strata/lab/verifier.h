#pragma once
// Inside the verification: one object per verified record. verify.cpp drives it; the checks stand by what they are
// about in verify_*.cpp.

#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/samples.h"
#include "strata/lab/compare.h"
#include "strata/lab/verify.h"

namespace strata::lab {

/// A check that did not hold; caught by Verifier::attempt.
struct Mismatch {
  std::string text;
};
template <class... Parts>
void expect(bool ok, const Parts&... parts) {
  if (!ok) throw Mismatch{cat(parts...)};
}

class Verifier {
 public:
  Verifier(const OpBase& op, const VerifyOptions& options);
  OpReport run();

 private:
  using Args = std::vector<Value>;
  struct Reference {
    std::vector<Tensor> results;
    std::string kind;
  };

  // One check of one sample: counts it, and keeps what went wrong.
  template <class F>
  void attempt(Check check, const Sample& sample, DType dtype, F&& body) {
    try {
      body();
      ++report_.passed[static_cast<size_t>(check)];
    } catch (const Mismatch& m) {
      fail(check, sample, dtype, m.text);
    } catch (const std::exception& e) {
      fail(check, sample, dtype, std::string("threw: ") + e.what());
    }
  }
  void fail(Check check, const Sample& sample, DType dtype, std::string message);
  // Calls the op on the device without recording; results flattened, on the CPU.
  std::vector<Tensor> call(const Args& args) const;
  // Throws what the op throws for these arguments on the CPU.
  void refused_on_cpu(const Args& args) const;
  // The arguments on the device, with the same strides over storages of the same size.
  Args on_device(const Args& args) const;
  bool schema_has(std::string_view type) const;

  // verify.cpp
  void round(DType dtype);
  void valid_sample(const Sample& sample, DType dtype);
  void large_sample(const Sample& sample, DType dtype);

  // verify_reference.cpp
  bool has_reference() const;
  Reference reference(const Args& args, DType dtype) const;
  Args reference_args(const Args& args, DType dtype, bool integers_too) const;
  Tolerance tolerance(const Tensor& result, const Args& args) const;
  void expect_close(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const Args& args,
                    double widen = 1);

  // verify_results.cpp
  void forward(const Args& args, const Reference& want);
  void memory(const Args& args);
  void strided(const Args& args, const Reference& want);
  void strided_views(const Args& args);
  void empty_arguments(const Args& args);
  void meta(const Args& args) const;
  void boxed(const Args& args) const;
  void view(const Args& args) const;
  void inplace(const Args& args) const;

  // verify_repeated.cpp
  void elsewhere(const Sample& sample, DType dtype) const;
  void threads();
  void repeated(DType dtype);
  std::vector<Sample> with_one_enlarged(const std::vector<Sample>& samples, bool gradient) const;

  // verify_gradient.cpp
  void inplace_gradient(const Args& args) const;
  void gradient(const Args& args) const;
  void second_gradient(const Args& args) const;
  void gradient_in(DType dtype, const Args& args) const;
  // The rule's gradients of floating arguments, in the order of the arguments.
  std::vector<Tensor> gradients_of(const Args& own) const;
  // The same, computed on the device and brought to the CPU.
  std::vector<Tensor> gradients_on_device(const Args& args) const;

  // verify_refusals.cpp
  void refused_sample(const InvalidSample& sample, DType dtype);
  void absurd_arguments(const Sample& sample) const;
  void wrong_types(const Args& args) const;
  void other_dtype(DType dtype);

  const OpBase& op_;
  VerifyOptions options_;
  OpReport report_;
};

}  // namespace strata::lab
