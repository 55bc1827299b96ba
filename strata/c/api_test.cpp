// The C interface: tensors, errors, gradients, DLPack, modules, streams, threads.

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strata/c/dlpack_abi.h"
#include "strata/c/strata.h"
#include "strata/cuda/runtime.h"
#include "strata/io/temp_dir.h"
#include "strata/text/tokenizer.h"
#include "strata/train/run.h"

namespace {

constexpr strata_device kCpu = {STRATA_CPU, 0};
constexpr strata_device kCard = {STRATA_CUDA, 0};

#define EXPECT_OK(...) EXPECT_EQ(__VA_ARGS__, STRATA_OK) << strata_error_text()
#define ASSERT_OK(...) ASSERT_EQ(__VA_ARGS__, STRATA_OK) << strata_error_text()

std::string error() {
  return strata_error_text();
}
bool error_has(const char* part) {
  return error().find(part) != std::string::npos;
}

// Released at the end of its scope.
struct Tensor {
  strata_tensor* p = nullptr;
  ~Tensor() { strata_tensor_release(p); }
  Tensor() = default;
  explicit Tensor(strata_tensor* t) : p(t) {}
  Tensor(const Tensor&) = delete;
  operator strata_tensor*() const { return p; }
  strata_tensor** operator&() { return &p; }
  std::vector<float> values() const {
    std::vector<float> v(static_cast<size_t>(strata_tensor_numel(p)));
    EXPECT_OK(strata_tensor_copy_to_host(p, v.data(), v.size() * sizeof(float)));
    return v;
  }
};
strata_tensor* made(const std::vector<float>& v, const std::vector<int64_t>& shape) {
  strata_tensor* t = nullptr;
  EXPECT_OK(strata_tensor_from_data(v.data(), v.size() * 4, shape.data(), static_cast<int32_t>(shape.size()),
                                    STRATA_F32, kCpu, &t));
  return t;
}
strata_value value(strata_tensor* t) {
  strata_value v = {};
  v.kind = STRATA_TENSOR;
  v.as.tensor = t;
  return v;
}
strata_tensor* call(const char* op, std::vector<strata_value> args) {
  strata_value result = {};
  size_t room = 1;
  EXPECT_OK(strata_call(op, args.data(), args.size(), &result, &room));
  return result.as.tensor;
}

TEST(C, Library) {
  EXPECT_EQ(strata_abi_version(), uint32_t{STRATA_ABI_VERSION});
  EXPECT_STREQ(strata_version(), "0.1.0");
  const int32_t threads = strata_num_threads();
  EXPECT_OK(strata_set_num_threads(2));
  EXPECT_EQ(strata_num_threads(), 2);
  EXPECT_OK(strata_set_num_threads(threads));
  EXPECT_EQ(strata_set_num_threads(0), STRATA_VALUE_ERROR);
  EXPECT_EQ(error(), "strata_set_num_threads: at least 1 thread is needed, got 0");
  EXPECT_EQ(strata_error_status(), STRATA_VALUE_ERROR);
}

TEST(C, TensorsInAndOut) {
  const Tensor x(made({1, 2, 3, 4, 5, 6}, {2, 3}));
  EXPECT_EQ(strata_tensor_ndim(x), 2);
  EXPECT_EQ(strata_tensor_shape(x)[1], 3);
  EXPECT_EQ(strata_tensor_strides(x)[0], 3);
  EXPECT_EQ(strata_tensor_numel(x), 6);
  EXPECT_EQ(strata_tensor_dtype(x), STRATA_F32);
  EXPECT_EQ(strata_tensor_device(x).type, STRATA_CPU);
  EXPECT_TRUE(strata_tensor_is_contiguous(x));
  EXPECT_EQ(static_cast<float*>(strata_tensor_data(x))[5], 6);
  EXPECT_EQ(x.values(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  strata_value text = {};
  EXPECT_OK(strata_tensor_to_string(x, &text));
  EXPECT_EQ(text.kind, STRATA_STRING);
  EXPECT_STREQ(text.as.text, "tensor([[1., 2., 3.],\n        [4., 5., 6.]])");
  strata_value_clear(&text);
  EXPECT_EQ(text.kind, STRATA_NONE);
  Tensor scalar;
  EXPECT_OK(strata_tensor_empty(nullptr, 0, STRATA_I64, kCpu, &scalar));
  EXPECT_EQ(strata_tensor_numel(scalar), 1);
  Tensor dry;
  const int64_t shape[] = {4};
  EXPECT_OK(strata_tensor_empty(shape, 1, STRATA_BF16, {STRATA_META, 0}, &dry));
  EXPECT_EQ(strata_tensor_data(dry), nullptr);
}

TEST(C, TensorsOnOtherTiers) {
  const Tensor x(made({1, 2, 3, 4, 5, 6}, {2, 3}));
  const auto tier = [](const strata_tensor* t) {
    strata_value name = {};
    EXPECT_OK(strata_tensor_tier(t, &name));
    const std::string text(name.as.text, name.size);
    strata_value_clear(&name);
    return text;
  };
  EXPECT_EQ(tier(x), "host");
  Tensor there;
  EXPECT_OK(strata_tensor_to_tier(x, "disk", &there));
  EXPECT_EQ(tier(there), "disk");
  EXPECT_EQ(strata_tensor_data(there), nullptr);
  float back[6] = {};
  EXPECT_OK(strata_tensor_copy_to_host(there, back, sizeof back));
  EXPECT_EQ(back[5], 6);
  Tensor none;
  EXPECT_EQ(strata_tensor_to_tier(x, "attic", &none), STRATA_VALUE_ERROR);
  EXPECT_TRUE(error_has("there is no memory 'attic' in this program; there are own, host, disk")) << error();
  EXPECT_EQ(strata_tensor_to_tier(x, nullptr, &none), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_tensor_tier(nullptr, nullptr), STRATA_VALUE_ERROR);
}

TEST(C, ArgumentsThatAreRefused) {
  Tensor t;
  const int64_t shape[] = {2, 3}, negative[] = {-1}, huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  float data[6] = {};
  EXPECT_EQ(strata_tensor_from_data(data, 20, shape, 2, STRATA_F32, kCpu, &t), STRATA_SHAPE_ERROR);
  EXPECT_TRUE(error_has("takes 24 bytes, got 20")) << error();
  EXPECT_EQ(strata_tensor_from_data(nullptr, 24, shape, 2, STRATA_F32, kCpu, &t), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_tensor_empty(shape, 9, STRATA_F32, kCpu, &t), STRATA_SHAPE_ERROR);
  EXPECT_EQ(strata_tensor_empty(shape, -1, STRATA_F32, kCpu, &t), STRATA_SHAPE_ERROR);
  EXPECT_EQ(strata_tensor_empty(nullptr, 1, STRATA_F32, kCpu, &t), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_tensor_empty(negative, 1, STRATA_F32, kCpu, &t), STRATA_SHAPE_ERROR);
  EXPECT_EQ(strata_tensor_empty(huge, 2, STRATA_F32, kCpu, &t), STRATA_SHAPE_ERROR);
  EXPECT_EQ(strata_tensor_empty(huge, 1, STRATA_F64, {STRATA_CPU, 0}, &t), STRATA_MEMORY_ERROR);
  EXPECT_EQ(strata_tensor_empty(shape, 2, static_cast<strata_dtype>(12), kCpu, &t), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_tensor_empty(shape, 2, STRATA_F32, {7, 0}, &t), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_tensor_empty(shape, 2, STRATA_F32, {STRATA_CPU, 3}, &t), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_tensor_empty(shape, 2, STRATA_F32, kCpu, nullptr), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_tensor_copy_to_host(nullptr, data, 24), STRATA_VALUE_ERROR);
  EXPECT_EQ(error(), "strata_tensor_copy_to_host: the tensor is NULL");
  EXPECT_EQ(t.p, nullptr);
  // What has no status is harmless.
  EXPECT_EQ(strata_tensor_ndim(nullptr), 0);
  EXPECT_EQ(strata_tensor_shape(nullptr), nullptr);
  EXPECT_EQ(strata_tensor_data(nullptr), nullptr);
  EXPECT_FALSE(strata_tensor_requires_grad(nullptr));
  strata_tensor_release(nullptr);
  strata_value_clear(nullptr);
  EXPECT_EQ(strata_tensor_retain(nullptr), nullptr);
}

TEST(C, BorrowedMemory) {
  float data[12];
  for (int i = 0; i < 12; ++i) data[i] = static_cast<float>(i);
  int released = 0;
  const auto deleter = [](void* count) { ++*static_cast<int*>(count); };
  const int64_t shape[] = {2, 3}, strides[] = {6, 2}, backwards[] = {-3, 1};
  {
    Tensor view;
    {
      Tensor t;
      ASSERT_OK(strata_tensor_borrow(data, shape, strides, 2, STRATA_F32, kCpu, deleter, &released, &t));
      EXPECT_FALSE(strata_tensor_is_contiguous(t));
      EXPECT_EQ(t.values(), (std::vector<float>{0, 2, 4, 6, 8, 10}));
      strata_value dims[3] = {value(t), {}, {}};
      dims[1].kind = dims[2].kind = STRATA_INT;
      dims[2].as.integer = 1;
      view.p = call("transpose", {dims[0], dims[1], dims[2]});
      // In place, seen by the owner.
      strata_value args[2] = {value(t), value(t)};
      EXPECT_OK(strata_op_call_inplace(strata_op_find("add"), args, 2));
      EXPECT_EQ(data[10], 20);
    }
    EXPECT_EQ(released, 0);  // the view is still there
    EXPECT_EQ(view.values(), (std::vector<float>{0, 12, 4, 16, 8, 20}));
  }
  EXPECT_EQ(released, 1);
  Tensor t;
  EXPECT_EQ(strata_tensor_borrow(data, shape, backwards, 2, STRATA_F32, kCpu, deleter, &released, &t),
            STRATA_VALUE_ERROR);
  EXPECT_TRUE(error_has("strides must not be negative")) << error();
  EXPECT_EQ(strata_tensor_borrow(nullptr, shape, nullptr, 2, STRATA_F32, kCpu, deleter, &released, &t),
            STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_tensor_borrow(reinterpret_cast<char*>(data) + 1, shape, nullptr, 2, STRATA_F32, kCpu, deleter,
                                 &released, &t),
            STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_tensor_borrow(data, shape, nullptr, 2, STRATA_F32, {STRATA_META, 0}, deleter, &released, &t),
            STRATA_DEVICE_ERROR);
  EXPECT_EQ(released, 1);  // who keeps the memory frees it
}

TEST(C, NoLeakOverManyTensors) {
  std::atomic<int> released{0};
  const auto deleter = [](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); };
  float data[4] = {1, 2, 3, 4};
  const int64_t shape[] = {4};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&] {
      for (int i = 0; i < 25000; ++i) {
        Tensor t;
        ASSERT_OK(strata_tensor_borrow(data, shape, nullptr, 1, STRATA_F32, kCpu, deleter, &released, &t));
        const Tensor y(call("relu", {value(t)}));
        ASSERT_NE(y.p, nullptr);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(released.load(), 100000);
}

TEST(C, ErrorsBelongToTheirThread) {
  EXPECT_EQ(strata_set_num_threads(-1), STRATA_VALUE_ERROR);
  std::thread([] {
    EXPECT_EQ(strata_error_status(), STRATA_OK);
    EXPECT_STREQ(strata_error_text(), "");
    EXPECT_EQ(strata_call("no_such_op", nullptr, 0, nullptr, nullptr), STRATA_VALUE_ERROR);
    EXPECT_TRUE(error_has("there is no op 'no_such_op'")) << error();
  }).join();
  EXPECT_TRUE(error_has("at least 1 thread")) << error();
}

TEST(C, OpsByName) {
  const size_t count = strata_op_count();
  EXPECT_GT(count, 250u);
  std::string last;
  for (size_t i = 0; i < count; ++i) {
    const strata_op* op = strata_op_at(i);
    const std::string name = strata_op_name(op);
    EXPECT_LT(last, name);
    EXPECT_EQ(strata_op_find(name.c_str()), op);
    EXPECT_TRUE(std::string(strata_op_schema(op)).starts_with(name + "(")) << strata_op_schema(op);
    EXPECT_STRNE(strata_op_doc(op), "");
    last = name;
  }
  EXPECT_EQ(strata_op_at(count), nullptr);
  EXPECT_EQ(strata_op_find("no_such_op"), nullptr);
  EXPECT_EQ(strata_op_find(nullptr), nullptr);
  EXPECT_STREQ(strata_op_schema(strata_op_find("relu")), "relu(Tensor x) -> Tensor");
}

TEST(C, CallsThatAreRefused) {
  const Tensor a(made({1, 2, 3}, {3})), b(made({1, 2}, {2}));
  strata_value args[3] = {value(a), value(b), {}}, results[4] = {};
  size_t room = 4;
  EXPECT_EQ(strata_call("matmul", args, 2, results, &room), STRATA_SHAPE_ERROR);
  EXPECT_TRUE(error().starts_with("matmul: ")) << error();
  EXPECT_EQ(strata_call("add", args, 1, results, &room), STRATA_VALUE_ERROR);
  EXPECT_TRUE(error_has("argument 'b' is missing")) << error();
  args[1].kind = 55;
  EXPECT_EQ(strata_call("add", args, 2, results, &room), STRATA_VALUE_ERROR);
  EXPECT_TRUE(error_has("add: there is no strata_kind 55")) << error();
  args[1] = {};
  args[1].kind = STRATA_STRING;
  args[1].as.text = "b";
  args[1].size = 1;
  EXPECT_EQ(strata_call("add", args, 2, results, &room), STRATA_VALUE_ERROR);
  EXPECT_TRUE(error_has("argument 'b' must be of type Tensor")) << error();
  int64_t nine[9] = {};
  args[1].kind = STRATA_INTS;
  args[1].as.integers = nine;
  args[1].size = 9;
  EXPECT_EQ(strata_call("sum", args, 2, results, &room), STRATA_VALUE_ERROR);
  EXPECT_TRUE(error_has("a list holds at most 8 integers, got 9")) << error();
  room = 0;
  EXPECT_EQ(strata_call("relu", args, 1, results, &room), STRATA_VALUE_ERROR);
  EXPECT_TRUE(error_has("relu: gives 1 results, there is room for 0")) << error();
  EXPECT_EQ(strata_op_call(nullptr, args, 1, results, &room), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_op_call_inplace(strata_op_find("matmul"), args, 1), STRATA_VALUE_ERROR);
  EXPECT_TRUE(error_has("matmul: has no in-place form")) << error();
}

TEST(C, SeveralResultsAndLists) {
  const Tensor x(made({3, 1, 2, 6, 5, 4}, {2, 3}));
  strata_value args[3] = {value(x), {}, {}}, results[2] = {};
  args[1].kind = args[2].kind = STRATA_INT;
  args[1].as.integer = 2;
  args[2].as.integer = 1;
  size_t room = 2;
  ASSERT_OK(strata_call("topk", args, 3, results, &room));
  EXPECT_EQ(room, 2u);
  EXPECT_EQ(strata_tensor_dtype(results[1].as.tensor), STRATA_I64);
  strata_tensor* list[] = {results[0].as.tensor, results[0].as.tensor};
  strata_value cat[2] = {};
  cat[0].kind = STRATA_TENSORS;
  cat[0].as.tensors = list;
  cat[0].size = 2;
  cat[1].kind = STRATA_INT;
  const Tensor both(call("cat", {cat[0], cat[1]}));
  EXPECT_EQ(both.values(), (std::vector<float>{3, 2, 6, 5, 3, 2, 6, 5}));
  for (strata_value& v : results) strata_value_clear(&v);
}

TEST(C, Gradients) {
  const Tensor x(made({1, 2, 3}, {3}));
  EXPECT_OK(strata_tensor_set_requires_grad(x, true));
  EXPECT_TRUE(strata_tensor_requires_grad(x));
  const Tensor square(call("mul", {value(x), value(x)}));
  const Tensor total(call("sum", {value(square)}));
  EXPECT_OK(strata_tensor_backward(total, nullptr, true, false));
  Tensor grad;
  EXPECT_OK(strata_tensor_grad(x, &grad));
  EXPECT_EQ(grad.values(), (std::vector<float>{2, 4, 6}));
  EXPECT_OK(strata_tensor_set_grad(x, nullptr));
  Tensor none;
  EXPECT_OK(strata_tensor_grad(x, &none));
  EXPECT_EQ(none.p, nullptr);
  strata_tensor *outputs[] = {total}, *inputs[] = {x}, *grads[] = {nullptr};
  EXPECT_OK(strata_grad(outputs, 1, inputs, 1, nullptr, false, true, false, grads));
  const Tensor first(grads[0]);
  EXPECT_TRUE(strata_tensor_requires_grad(first));  // create_graph
  const Tensor unused(made({1}, {1}));
  EXPECT_OK(strata_tensor_set_requires_grad(unused, true));
  strata_tensor* other[] = {unused};
  EXPECT_EQ(strata_grad(outputs, 1, other, 1, nullptr, true, false, false, grads), STRATA_AUTOGRAD_ERROR);
  EXPECT_OK(strata_grad(outputs, 1, other, 1, nullptr, true, false, true, grads));
  EXPECT_EQ(grads[0], nullptr);
  Tensor plain;
  EXPECT_OK(strata_tensor_detach(total, &plain));
  EXPECT_FALSE(strata_tensor_requires_grad(plain));
  EXPECT_EQ(strata_tensor_backward(plain, nullptr, false, false), STRATA_AUTOGRAD_ERROR);
  EXPECT_TRUE(strata_set_grad_enabled(false));
  EXPECT_FALSE(strata_grad_enabled());
  const Tensor silent(call("mul", {value(x), value(x)}));
  EXPECT_FALSE(strata_tensor_requires_grad(silent));
  EXPECT_FALSE(strata_set_grad_enabled(true));
}

TEST(C, WritesFromOutsideAreNoticed) {
  const Tensor x(made({1, 2, 3}, {3}));
  EXPECT_OK(strata_tensor_set_requires_grad(x, true));
  const Tensor y(call("exp", {value(x)}));
  const Tensor total(call("sum", {value(y)}));
  static_cast<float*>(strata_tensor_data(y))[0] = 7;
  strata_tensor_written(y);
  EXPECT_EQ(strata_tensor_backward(total, nullptr, false, false), STRATA_AUTOGRAD_ERROR);
  EXPECT_TRUE(error_has("strata_tensor_written")) << error();
}

TEST(C, Seeds) {
  const auto draw = [] {
    strata_value shape = {}, zero = {}, one = {}, key = {};
    const int64_t n = 4;
    shape.kind = STRATA_INTS;
    shape.as.integers = &n;
    shape.size = 1;
    zero.kind = one.kind = STRATA_FLOAT;
    one.as.number = 1;
    key.kind = STRATA_RNG_KEY;
    key.as.key = strata_rng_next(4);
    const Tensor t(call("uniform", {shape, zero, one, key}));
    return t.values();
  };
  strata_seed(5);
  const std::vector<float> first = draw(), second = draw();
  EXPECT_NE(first, second);
  strata_seed(5);
  EXPECT_EQ(draw(), first);
}

// ---- DLPack

template <class Managed>
struct Counted {
  Managed managed = {};
  int* count;
  static void free(Managed* m) {
    auto* self = static_cast<Counted*>(m->manager_ctx);
    ++*self->count;
    delete self;
  }
};
template <class Managed>
Managed* foreign(DLTensor tensor, int* count) {
  auto* c = new Counted<Managed>;
  c->count = count;
  c->managed.dl_tensor = tensor;
  c->managed.manager_ctx = c;
  c->managed.deleter = Counted<Managed>::free;
  return &c->managed;
}

TEST(DLPack, LentWithoutACopy) {
  DLManagedTensor* lent = nullptr;
  DLManagedTensorVersioned* versioned = nullptr;
  {
    const Tensor x(made({1, 2, 3, 4, 5, 6}, {2, 3}));
    strata_value dim0 = {}, dim1 = {};
    dim0.kind = dim1.kind = STRATA_INT;
    dim1.as.integer = 1;
    const Tensor t(call("transpose", {value(x), dim0, dim1}));
    ASSERT_OK(strata_tensor_to_dlpack(t, &lent));
    ASSERT_OK(strata_tensor_to_dlpack_versioned(x, &versioned));
    EXPECT_EQ(lent->dl_tensor.data, strata_tensor_data(x));
  }
  const DLTensor& d = lent->dl_tensor;  // outlives the handles
  EXPECT_EQ(d.ndim, 2);
  EXPECT_EQ(d.shape[0], 3);
  EXPECT_EQ(d.strides[0], 1);
  EXPECT_EQ(d.strides[1], 3);
  EXPECT_EQ(d.dtype.code, 2);
  EXPECT_EQ(d.dtype.bits, 32);
  EXPECT_EQ(d.device.device_type, 1);
  EXPECT_EQ(static_cast<float*>(d.data)[5], 6);
  EXPECT_EQ(versioned->version.major, 1u);
  EXPECT_EQ(versioned->flags, 0u);
  lent->deleter(lent);
  versioned->deleter(versioned);
}

TEST(DLPack, TakenWithoutACopy) {
  float data[6] = {1, 2, 3, 4, 5, 6};
  int64_t shape[] = {2, 2}, strides[] = {3, 1};
  int freed = 0;
  const DLTensor d = {data, {1, 0}, 2, {2, 32, 1}, shape, strides, 4};
  {
    Tensor old, fresh;
    ASSERT_OK(strata_tensor_from_dlpack(foreign<DLManagedTensor>(d, &freed), &old));
    DLManagedTensorVersioned* v = foreign<DLManagedTensorVersioned>(d, &freed);
    v->version = {1, 1};
    ASSERT_OK(strata_tensor_from_dlpack_versioned(v, &fresh));
    EXPECT_EQ(old.values(), (std::vector<float>{2, 3, 5, 6}));
    EXPECT_EQ(strata_tensor_data(fresh), data + 1);
    EXPECT_EQ(freed, 0);
  }
  EXPECT_EQ(freed, 2);
}

TEST(DLPack, EveryDtypeThereAndBack) {
  for (int32_t dtype = 0; dtype < 10; ++dtype) {
    const int64_t shape[] = {3};
    Tensor t, back;
    ASSERT_OK(strata_tensor_empty(shape, 1, static_cast<strata_dtype>(dtype), kCpu, &t));
    DLManagedTensor* lent = nullptr;
    ASSERT_OK(strata_tensor_to_dlpack(t, &lent));
    ASSERT_OK(strata_tensor_from_dlpack(lent, &back));
    EXPECT_EQ(strata_tensor_dtype(back), dtype);
    EXPECT_EQ(strata_tensor_data(back), strata_tensor_data(t));
  }
}

TEST(DLPack, Refusals) {
  float data[4] = {};
  int64_t shape[] = {4}, backwards[] = {-1};
  int freed = 0;
  const auto refused = [&](DLTensor d, strata_status status, const char* text) {
    DLManagedTensor* m = foreign<DLManagedTensor>(d, &freed);
    Tensor t;
    EXPECT_EQ(strata_tensor_from_dlpack(m, &t), status);
    EXPECT_TRUE(error_has(text)) << error();
    const int before = freed;
    m->deleter(m);  // it stayed ours
    EXPECT_EQ(freed, before + 1);
  };
  refused({data, {1, 0}, 1, {5, 64, 1}, shape, nullptr, 0}, STRATA_DTYPE_ERROR, "DLPack's type code 5 with 64 bits");
  refused({data, {1, 0}, 1, {2, 32, 4}, shape, nullptr, 0}, STRATA_DTYPE_ERROR, "4 lanes");
  refused({data, {10, 0}, 1, {2, 32, 1}, shape, nullptr, 0}, STRATA_DEVICE_ERROR, "DLPack's device type 10");
  refused({data, {1, 0}, 1, {2, 32, 1}, shape, backwards, 0}, STRATA_VALUE_ERROR, "strides must not be negative");
  refused({data, {1, 0}, 12, {2, 32, 1}, shape, nullptr, 0}, STRATA_SHAPE_ERROR, "0 to 8 dimensions");
  if (strata_cuda_device_count() == 0)
    refused({data, {2, 0}, 1, {2, 32, 1}, shape, nullptr, 0}, STRATA_DEVICE_ERROR, "there is no cuda:0");
  DLManagedTensorVersioned* later =
      foreign<DLManagedTensorVersioned>({data, {1, 0}, 1, {2, 32, 1}, shape, nullptr, 0}, &freed);
  later->version = {2, 0};
  Tensor t;
  EXPECT_EQ(strata_tensor_from_dlpack_versioned(later, &t), STRATA_VALUE_ERROR);
  EXPECT_TRUE(error_has("DLPack 2.0 is not understood")) << error();
  later->deleter(later);
  EXPECT_EQ(strata_tensor_from_dlpack(nullptr, &t), STRATA_VALUE_ERROR);
  const Tensor x(made({1}, {1}));
  EXPECT_OK(strata_tensor_set_requires_grad(x, true));
  DLManagedTensor* lent = nullptr;
  EXPECT_EQ(strata_tensor_to_dlpack(x, &lent), STRATA_AUTOGRAD_ERROR);
  EXPECT_TRUE(error_has("detach it first")) << error();
}

// ---- modules

TEST(C, ModuleOfACheckpoint) {
  const strata::io::TempDir dir;
  strata::RunState state;
  state.config.model.vocab = 256;
  state.config.model.layers = 1;
  state.config.model.dim = 16;
  state.config.model.heads = 2;
  state.config.model.context = 16;
  state.config.data.tokenizer = "byte";
  state.tokenizer = strata::text::ByteTokenizer().to_json();
  const auto model = strata::make_model(state.config.model);
  const auto optimizer = strata::make_optimizer(state.config.optim, model->named_parameters());
  strata::save_run(dir.path(), state, *model, *optimizer, 1);

  strata_module* module = nullptr;
  ASSERT_OK(strata_module_load(dir.path().c_str(), kCpu, &module));
  EXPECT_EQ(strata_module_num_parameters(module), model->named_parameters().size());
  const char* name = nullptr;
  Tensor parameter;
  ASSERT_OK(strata_module_parameter(module, 0, &name, &parameter));
  EXPECT_EQ(name, model->named_parameters()[0].first);
  EXPECT_EQ(strata_module_parameter(module, 10000, &name, nullptr), STRATA_INDEX_ERROR);
  const int64_t ids[] = {1, 2, 3}, shape[] = {1, 3};
  Tensor tokens, logits;
  ASSERT_OK(strata_tensor_from_data(ids, sizeof ids, shape, 2, STRATA_I64, kCpu, &tokens));
  ASSERT_OK(strata_module_forward(module, tokens, &logits));
  EXPECT_EQ(strata_tensor_shape(logits)[2], 256);
  EXPECT_OK(strata_module_set_training(module, true));
  strata_value first = {}, second = {};
  ASSERT_OK(strata_module_generate(module, "a", 20, 0.8, 40, 3, &first));
  ASSERT_OK(strata_module_generate(module, "a", 20, 0.8, 40, 3, &second));
  EXPECT_EQ(first.size, 20u);  // bytes
  EXPECT_EQ(std::string(first.as.text, first.size), std::string(second.as.text, second.size));
  strata_value_clear(&first);
  strata_value_clear(&second);
  EXPECT_EQ(strata_module_generate(module, "", 5, 1, 0, 0, &first), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_module_generate(module, "a", -1, 1, 0, 0, &first), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_module_generate(module, "a", 5, -1, 0, 0, &first), STRATA_VALUE_ERROR);
  strata_module_release(strata_module_retain(module));
  strata_module_release(module);
  strata_module_release(nullptr);
  EXPECT_EQ(strata_module_load("/no/such/run", kCpu, &module), STRATA_IO_ERROR);
  EXPECT_EQ(strata_module_load(dir.path().c_str(), {STRATA_META, 0}, &module), STRATA_DEVICE_ERROR);
}

// ---- streams and cards

TEST(C, StreamsOfTheCpu) {
  void* stream = &stream;
  EXPECT_OK(strata_current_stream(kCpu, &stream));
  EXPECT_EQ(stream, nullptr);
  EXPECT_OK(strata_set_current_stream(kCpu, nullptr));
  EXPECT_OK(strata_synchronize(kCpu));
  EXPECT_EQ(strata_stream_create(kCpu, &stream), STRATA_DEVICE_ERROR);
  if (strata_cuda_device_count() > 0) return;
  EXPECT_EQ(strata_current_stream(kCard, &stream), STRATA_DEVICE_ERROR);
  EXPECT_TRUE(error_has("there is no cuda:0: ")) << error();
  Tensor t;
  const int64_t shape[] = {2};
  EXPECT_EQ(strata_tensor_empty(shape, 1, STRATA_F32, kCard, &t), STRATA_DEVICE_ERROR);
}

TEST(C, Cards) {
  if (strata_cuda_device_count() == 0) GTEST_SKIP() << strata::cuda::unavailable_reason();
  void *main = nullptr, *other = nullptr, *now = nullptr;
  ASSERT_OK(strata_current_stream(kCard, &main));
  ASSERT_OK(strata_stream_create(kCard, &other));
  ASSERT_OK(strata_set_current_stream(kCard, other));
  ASSERT_OK(strata_current_stream(kCard, &now));
  EXPECT_EQ(now, other);
  const std::vector<float> v{1, 2, 3};
  const int64_t shape[] = {3};
  Tensor x, back;
  ASSERT_OK(strata_tensor_from_data(v.data(), 12, shape, 1, STRATA_F32, kCard, &x));
  const Tensor y(call("add", {value(x), value(x)}));
  EXPECT_EQ(y.values(), (std::vector<float>{2, 4, 6}));
  DLManagedTensor* lent = nullptr;
  ASSERT_OK(strata_tensor_to_dlpack(y, &lent));
  EXPECT_EQ(lent->dl_tensor.device.device_type, 2);
  ASSERT_OK(strata_tensor_from_dlpack(lent, &back));
  EXPECT_EQ(strata_tensor_data(back), strata_tensor_data(y));
  EXPECT_EQ(back.values(), (std::vector<float>{2, 4, 6}));
  ASSERT_OK(strata_set_current_stream(kCard, nullptr));
  ASSERT_OK(strata_current_stream(kCard, &now));
  EXPECT_EQ(now, main);
  int nothing = 0;
  EXPECT_EQ(strata_set_current_stream(kCard, &nothing), STRATA_VALUE_ERROR);
  EXPECT_OK(strata_synchronize(kCard));
}

}  // namespace
