// Decoding op by op against the engine's step, on the processor: the same weights, prompts and tokens (checked), a step
// of one and of the other in turns. Op by op is what a program of plain tensor operations does, one call each: separate
// products for q, k, v, gate and up, norms and rotations of elementwise ops, keys and values joined to what there was,
// heads repeated, attention of two products and a softmax, the likeliest token. Beside them the products with weights
// alone, which every way has: what op by op takes over them is the most that could be gained.
//     decode_bench [STEPS]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/generate/sequences.h"
#include "strata/memory/allocator.h"
#include "strata/models/language_model.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace {

using namespace strata;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

class OpByOp {
 public:
  OpByOp(const LanguageModel& model, const ModelConfig& c) : c_(c), head_size_(c.dim / c.heads) {
    for (auto& [name, t] : model.named_parameters()) weights_.emplace(name, t);
    keys_.resize(static_cast<size_t>(c.layers)), values_.resize(keys_.size());
    const Tensor even = arange(0, head_size_, 2, DType::f32) * (1.0 / static_cast<double>(head_size_));
    const Tensor angles = arange(c.context, DType::f32).view({c.context, 1}) * exp(even * -std::log(c.rope_theta));
    const DType dtype = at("token_embedding.weight").dtype();
    cos_ = cos(cat({angles, angles}, 1)).to(dtype), sin_ = sin(cat({angles, angles}, 1)).to(dtype);
  }
  // Tokens [B, T] behind those before: the likeliest that follows, [B].
  Tensor operator()(const Tensor& tokens) {
    const int64_t batch = tokens.size(0), time = tokens.size(1);
    Tensor x = embedding(tokens, at("token_embedding.weight"));
    for (int64_t n = 0; n < c_.layers; ++n) {
      const std::string block = cat("blocks.", n, ".");
      const Tensor qkv = at(block + "attn.qkv.weight"), up = at(block + "mlp.gate_up.weight");
      const int64_t q_rows = c_.heads * head_size_, kv_rows = c_.kv_heads * head_size_, width = up.size(0) / 2;
      const Tensor h = norm(x, at(block + "norm1.weight"));
      const auto heads = [&](int64_t first, int64_t rows) {
        return map(h, qkv.narrow(0, first, rows)).view({batch, time, rows / head_size_, head_size_}).transpose(1, 2);
      };
      const Tensor q = turned(heads(0, q_rows)), k = turned(heads(q_rows, kv_rows));
      Tensor &all_k = keys_[static_cast<size_t>(n)], &all_v = values_[static_cast<size_t>(n)];
      const Tensor v = heads(q_rows + kv_rows, kv_rows);
      all_k = all_k.defined() ? cat({all_k, k}, 2) : k.contiguous();
      all_v = all_v.defined() ? cat({all_v, v}, 2) : v.contiguous();
      Tensor scores = matmul(q, repeated(all_k).transpose(2, 3)) * (1 / std::sqrt(static_cast<double>(head_size_)));
      if (time > 1) scores = scores + triu(full({time, time}, -INFINITY, scores.dtype()), 1);
      const Tensor y = matmul(softmax(scores, 3), repeated(all_v)).transpose(1, 2).reshape({batch, time, q_rows});
      x = x + map(y, at(block + "attn.out.weight"));
      const Tensor g = norm(x, at(block + "norm2.weight"));
      const Tensor gate = map(g, up.narrow(0, 0, width));
      x = x + map(gate * sigmoid(gate) * map(g, up.narrow(0, width, width)), at(block + "mlp.down.weight"));
    }
    read_ += time;
    const Tensor last = norm(x, at("norm.weight")).narrow(1, time - 1, 1).reshape({batch, c_.dim});
    return argmax(map(last, at("head.weight")), 1);
  }
  // A step's products with weights and nothing else, which no way of decoding can leave out.
  void products(int64_t batch) {
    for (const auto& [name, w] : weights_) {
      if (w.dim() != 2 || name == "token_embedding.weight") continue;
      Tensor& x = inputs_[w.size(1)];
      if (!x.defined()) x = full({batch, w.size(1)}, 0.5, w.dtype());
      linear(x, w);
    }
  }

 private:
  const Tensor& at(const std::string& name) const { return weights_.at(name); }
  static Tensor map(const Tensor& x, const Tensor& w) { return matmul(x, w.t()); }
  Tensor norm(const Tensor& x, const Tensor& w) const { return x * rsqrt(mean(x * x, {-1}, true) + c_.norm_eps) * w; }
  Tensor turned(const Tensor& x) const {
    const int64_t half = head_size_ / 2, time = x.size(2);
    const Tensor other = cat({neg(x.narrow(3, half, half)), x.narrow(3, 0, half)}, 3);
    return x * cos_.narrow(0, read_, time) + other * sin_.narrow(0, read_, time);
  }
  Tensor repeated(const Tensor& x) const {
    const int64_t times = c_.heads / c_.kv_heads;
    if (times == 1) return x;
    return x.unsqueeze(2)
        .expand({x.size(0), c_.kv_heads, times, x.size(2), head_size_})
        .reshape({x.size(0), c_.heads, x.size(2), head_size_});
  }

  ModelConfig c_;
  int64_t head_size_, read_ = 0;
  std::map<std::string, Tensor> weights_;
  std::map<int64_t, Tensor> inputs_;  // of products(), by their size
  std::vector<Tensor> keys_, values_;
  Tensor cos_, sin_;
};

void row(const char* name, const ModelConfig& c, DType dtype, int64_t batch, int steps) {
  manual_seed(1);
  const std::shared_ptr<LanguageModel> model = make_model(c);
  const NoGrad guard;
  model->eval();
  model->to(dtype);
  constexpr int64_t kPrompt = 64;
  std::vector<int64_t> prompt;
  for (int64_t i = 0; i < kPrompt; ++i) prompt.push_back(i * 37 % c.vocab);
  Sequences rows(model, batch);
  for (int64_t r = 0; r < batch; ++r) rows.start(r, prompt, {.temperature = 0});
  OpByOp plain(*model, c);
  Tensor next = plain(from_span<int64_t>(prompt, {1, kPrompt}).expand({batch, kPrompt}).contiguous());
  std::vector<double> ours, theirs, least;
  int64_t requests[2] = {0, 0}, same = 0;
  const auto count = [] { return memory::stats(Device::cpu()).allocations; };
  for (int i = 0; i < steps; ++i) {
    const int64_t before = count();
    double from = seconds();
    rows.step();
    const std::vector<int64_t> ids = rows.ids().to_vector<int64_t>();
    if (i >= 2) ours.push_back(seconds() - from);
    const int64_t between = count();
    same += ids == next.to_vector<int64_t>();
    from = seconds();
    next = plain(next.view({batch, 1}));
    (void)next.to_vector<int64_t>();
    if (i >= 2) theirs.push_back(seconds() - from);
    requests[0] = between - before, requests[1] = count() - between;
    from = seconds();
    plain.products(batch);
    if (i >= 2) least.push_back(seconds() - from);
  }
  std::printf("| %s, %s | %lld | %.3f ms | %.3f ms | %.2f | %.3f ms | %.2f | %lld | %lld | %lld of %d |\n", name,
              std::string(name_of(dtype)).c_str(), static_cast<long long>(batch), median(theirs) * 1e3,
              median(ours) * 1e3, median(theirs) / median(ours), median(least) * 1e3, median(theirs) / median(least),
              static_cast<long long>(requests[1]), static_cast<long long>(requests[0]), static_cast<long long>(same),
              steps);
  std::fflush(stdout);
}

ModelConfig shape(int64_t layers, int64_t dim, int64_t heads, int64_t kv_heads, int64_t vocab) {
  ModelConfig c;
  c.family = "llama";
  c.layers = layers, c.dim = dim, c.heads = heads, c.kv_heads = kv_heads, c.vocab = vocab, c.context = 512;
  c.tied_embeddings = false;
  return c;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 60;
  std::printf(
      "| model | rows | op by op | ours | times | products alone | at most | requests, op by op | ours | tokens equal "
      "|\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  // Of bf16 tokens differ where two are about as likely: single ops round what one kernel keeps in f32.
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t batch : {1, 8})
      row("tiny: 2 layers of 64, 1,000 tokens", shape(2, 64, 4, 2, 1000), dtype, batch, steps);
    for (const int64_t batch : {1, 8})
      row("100M: 12 layers of 768, 16,000 tokens", shape(12, 768, 12, 4, 16000), dtype, batch, steps);
  }
  return 0;
}
