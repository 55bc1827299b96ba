// Matrix products through oneDNN, which has kernels for AVX2, AVX-512, AVX512-BF16 and AMX.

#include <atomic>
#include <bit>

#include "strata/ops/matmul/dnnl_inl.h"
#include "strata/ops/matmul/gemm_cpu.h"
#include "strata/ops/vec/level.h"

namespace strata::cpu::detail {
namespace {
struct Key {
  int64_t batch, m, n, k;
  int64_t a_batch, a_row, a_col, b_batch, b_row, b_col, c_batch, c_row;
  int32_t alpha, beta;  // bits of a float
  DType in, out;
  uint8_t bias;  // 1 + its dtype, 0 for none
  Epilogue epilogue;
  int32_t packed_b;  // as pack_b() does
};

void make(const Key& key, DnnlOp& op) {
  using dnnl::memory;
  const float alpha = std::bit_cast<float>(key.alpha), beta = std::bit_cast<float>(key.beta);
  const auto in = dnnl_dtype(key.in), out = dnnl_dtype(key.out);
  const bool batched = key.batch > 1;
  // An A or B that the batch shares has a batch of one, which oneDNN broadcasts.
  const auto desc = [&](int64_t stride, int64_t rows, int64_t cols, memory::data_type t, int64_t row, int64_t col) {
    if (!batched) return memory::desc({rows, cols}, t, memory::dims{row, col});
    if (stride == 0) return memory::desc({1, rows, cols}, t, memory::dims{rows * cols, row, col});
    return memory::desc({key.batch, rows, cols}, t, memory::dims{stride, row, col});
  };
  const memory::desc a = desc(key.a_batch, key.m, key.k, in, key.a_row, key.a_col);
  const memory::desc b = key.packed_b != 0 ? memory::desc({key.k, key.n}, in, memory::format_tag::BA16a64b)
                                           : desc(key.b_batch, key.k, key.n, in, key.b_row, key.b_col);
  const memory::desc c = desc(key.c_batch, key.m, key.n, out, key.c_row, 1);
  memory::desc bias;
  if (key.bias != 0) {
    const auto t = dnnl_dtype(static_cast<DType>(key.bias - 1));
    bias = batched ? memory::desc({1, 1, key.n}, t, memory::dims{key.n, key.n, 1})
                   : memory::desc({1, key.n}, t, memory::dims{key.n, 1});
  }
  dnnl::post_ops post;
  if (alpha != 1) append_eltwise(post, dnnl::algorithm::eltwise_linear, alpha, 0);
  if (beta != 0) post.append_sum(beta);
  switch (key.epilogue) {
    case Epilogue::none:
      break;
    case Epilogue::relu:
      append_eltwise(post, dnnl::algorithm::eltwise_relu, 0, 0);
      break;
    case Epilogue::gelu:
      append_eltwise(post, dnnl::algorithm::eltwise_gelu_erf, 0, 0);
      break;
    case Epilogue::gelu_tanh:
      append_eltwise(post, dnnl::algorithm::eltwise_gelu_tanh, 0, 0);
      break;
    case Epilogue::silu:
      append_eltwise(post, dnnl::algorithm::eltwise_swish, 1, 0);
      break;
    case Epilogue::gelu_tanh_grad:
      break;  // has aux, which is not taken
  }
  dnnl::primitive_attr attr;
  attr.set_post_ops(post);
#if DNNL_VERSION_MAJOR >= 3
  const auto pd = key.bias != 0 ? dnnl::matmul::primitive_desc(dnnl_engine(), a, b, bias, c, attr)
                                : dnnl::matmul::primitive_desc(dnnl_engine(), a, b, c, attr);
#else
  const auto d = key.bias != 0 ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc pd(d, attr, dnnl_engine());
#endif
  // The reference kernel is slower than our blocked one by orders of magnitude.
  if (std::strncmp(pd.impl_info_str(), "ref", 3) == 0) return;
  op.primitive = dnnl::matmul(pd);
  op.add(DNNL_ARG_SRC, a);
  op.add(DNNL_ARG_WEIGHTS, b);
  op.add(DNNL_ARG_DST, c);
  if (key.bias != 0) op.add(DNNL_ARG_BIAS, bias);
}

// oneDNN compiles a kernel for every size that it meets, which takes as long as a product of some hundred rows: too
// long where sizes come from data (tokens of an expert, rows of a batch padded to its longest). So sizes above this are
// cut into a multiple of half of it and a rest, by the sizes alone: a network meets few multiples, and less than 32
// rests. A large product takes longer than its kernel's making, and would lose up to a tenth by a second call.
constexpr int64_t kWhole = 64, kStep = kWhole / 2, kMostWork = int64_t{1} << 25;
int64_t rest_of(int64_t size, const Gemm& g) {
  const bool cut = size > kWhole && g.m * g.n * g.k <= kMostWork && g.batch.product() == 1;
  return cut ? size % kStep : 0;
}

std::atomic<int64_t> made{0};

bool run(const Gemm& g, bool packed_b, bool ask) {
  if (g.aux != nullptr) return false;
  dnnl_on_this_thread();
  Key key{};
  const bool batched = !g.batch.empty() && g.batch[0] > 1;
#if DNNL_VERSION_MAJOR < 3
  // oneDNN 2.6 returns wrong sums for batches of bf16 products with a transposed B on AMX (seen with m = 40, n = 50, k
  // = 60).
  if (batched && g.in == DType::bf16 && g.b_col != 1 && has_amx_bf16()) return false;
#endif
  key.batch = batched ? g.batch[0] : 1;
  key.m = g.m, key.n = g.n, key.k = g.k;
  key.a_batch = batched ? g.a_batch[0] : 0, key.b_batch = batched ? g.b_batch[0] : 0;
  key.c_batch = batched ? g.c_batch[0] : 0;
  key.a_row = g.a_row, key.a_col = g.a_col, key.b_row = g.b_row, key.b_col = g.b_col, key.c_row = g.c_row;
  key.alpha = std::bit_cast<int32_t>(static_cast<float>(g.alpha));
  key.beta = std::bit_cast<int32_t>(static_cast<float>(g.beta));
  key.in = g.in, key.out = g.out;
  key.bias = g.bias != nullptr ? static_cast<uint8_t>(1 + static_cast<int>(g.bias_dtype)) : 0;
  key.epilogue = g.epilogue;
  key.packed_b = packed_b;
  if (packed_b) key.b_row = key.b_col = 0;
  thread_local DnnlCache<Key> cache;
  DnnlOp& op = cache.get(key, [&](DnnlOp& fresh) {
    made.fetch_add(1, std::memory_order_relaxed);
    make(key, fresh);
  });
  if (!op.primitive || ask) return static_cast<bool>(op.primitive);
  if (g.bias != nullptr) {
    op.run({g.a, g.b, g.c, g.bias});
  } else {
    op.run({g.a, g.b, g.c});
  }
  return true;
}

// With the rows that are left over by themselves.
bool run_rows(const Gemm& g, bool packed_b, bool ask) {
  const int64_t rest = rest_of(g.m, g);
  if (rest == 0) return run(g, packed_b, ask);
  Gemm head = g, tail = g;
  head.m = g.m - rest, tail.m = rest;
  tail.a = static_cast<const char*>(g.a) + head.m * g.a_row * size_of(g.in);
  tail.c = static_cast<char*>(g.c) + head.m * g.c_row * size_of(g.out);
  // A tail without a kernel is found before anything is written.
  if (ask || !run(tail, packed_b, true)) return ask && run(head, packed_b, true);
  return run(head, packed_b, false) && run(tail, packed_b, false);
}

}  // namespace

bool gemm_onednn(const Gemm& g, bool ask) {
  // The sum over a batch's rows: a weight's gradient, whose A lies by columns.
  const bool over_rows = g.in == DType::f32 && g.a_row == 1 && g.a_col != 1 && g.epilogue == Epilogue::none;
  const int64_t rest = over_rows ? rest_of(g.k, g) : 0;
  if (rest == 0) return run_rows(g, false, ask);
  Gemm head = g, tail = g;
  head.k = g.k - rest, tail.k = rest;
  tail.a = static_cast<const float*>(g.a) + head.k * g.a_col;
  tail.b = static_cast<const float*>(g.b) + head.k * g.b_row;
  tail.bias = nullptr, tail.beta = 1;
  if (ask || !run_rows(tail, false, true)) return ask && run_rows(head, false, true);
  return run_rows(head, false, false) && run_rows(tail, false, false);
}

bool gemm_packed(const Gemm& g, bool ask) {
  return run_rows(g, true, ask);
}

int64_t gemm_kernels_made() {
  return made.load(std::memory_order_relaxed);
}

}  // namespace strata::cpu::detail
