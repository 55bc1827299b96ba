#pragma once
// What matmul and convolution share of oneDNN: engine, dtypes, a bounded cache of primitives, and the differences
// between its 2.x and 3.x interfaces. Included by .cpp files only.

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "strata/core/dtype.h"

namespace strata::cpu::detail {

inline dnnl::engine& dnnl_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}
inline dnnl::stream& dnnl_stream() {
  thread_local dnnl::stream stream(dnnl_engine());
  return stream;
}

inline dnnl::memory::data_type dnnl_dtype(DType t) {
  using D = dnnl::memory::data_type;
  switch (t) {
    case DType::f32:
      return D::f32;
    case DType::bf16:
      return D::bf16;
    case DType::f16:
      return D::f16;
    default:
      return D::undef;
  }
}

inline void append_eltwise(dnnl::post_ops& ops, dnnl::algorithm alg, float alpha, float beta) {
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(alg, alpha, beta);
#else
  ops.append_eltwise(1.0f, alg, alpha, beta);
#endif
}

/// Makes oneDNN compute on the calling thread alone, for primitives made and run from here: its OpenMP team would
/// compete with the pool of parallel.h, whose loops call it side by side instead. Call this before both.
inline void dnnl_on_this_thread() {
  thread_local const bool once = (omp_set_num_threads(1), true);
  static_cast<void>(once);
}

/// Keeps signals from this thread for a scope. oneDNN's f32 products may let the stack pointer point into memory of the
/// heap while they run: a handler that ran there would write over what lies below. A signal waits for the end of the
/// product, or goes to another thread. Faults are not held: they belong to the instruction that made them.
class SignalsHeld {
 public:
  SignalsHeld() {
    static const sigset_t all = [] {
      sigset_t s;
      sigfillset(&s);
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&s, fault);
      return s;
    }();
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

/// A primitive with its memory objects, whose addresses are set before each run.
struct DnnlOp {
  dnnl::primitive primitive;           ///< empty where oneDNN has no kernel for the key
  std::vector<dnnl::memory> memories;  ///< in the order of args
  std::vector<dnnl_exec_arg_t> args;

  void add(int arg, const dnnl::memory::desc& desc) {
    memories.emplace_back(desc, dnnl_engine(), nullptr);
    args.push_back({arg, memories.back().get()});
  }
  void run(std::initializer_list<const void*> pointers) {
    size_t i = 0;
    for (const void* p : pointers) memories[i++].set_data_handle(const_cast<void*>(p));
    const SignalsHeld held;
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive.get(), dnnl_stream().get(), static_cast<int>(args.size()), args.data()),
        "could not execute a primitive");
    dnnl_stream().wait();
  }
};

/// Each thread's primitives by a key of integers; the least recently used one of 4 in a bucket makes room.
template <class Key, class Op = DnnlOp>
class DnnlCache {
 public:
  /// The op for `key`, made by make(op) on first use. A dnnl::error in `make` is remembered as an empty op.
  template <class Make>
  Op& get(const Key& key, Make&& make) {
    static_assert(std::is_trivially_copyable_v<Key>);
    static_assert(std::has_unique_object_representations_v<Key>, "the key is compared byte by byte");
    Slot* bucket = slots_.data() + hash(key) % kBuckets * kWays;
    Slot* oldest = bucket;
    for (Slot* s = bucket; s < bucket + kWays; ++s) {
      if (s->op && std::memcmp(&s->key, &key, sizeof(Key)) == 0) {
        s->used = ++clock_;
        return *s->op;
      }
      if (s->used < oldest->used) oldest = s;
    }
    auto op = std::make_unique<Op>();
    try {
      make(*op);
    } catch (const dnnl::error&) {
      *op = Op();
    }
    oldest->key = key;
    oldest->used = ++clock_;
    oldest->op = std::move(op);
    return *oldest->op;
  }

 private:
  static constexpr size_t kBuckets = 128, kWays = 4;
  struct Slot {
    Key key{};
    uint64_t used = 0;
    std::unique_ptr<Op> op;
  };
  static uint64_t hash(const Key& key) {
    static_assert(sizeof(Key) % 8 == 0);
    uint64_t words[sizeof(Key) / 8], h = 0x9e3779b97f4a7c15u;
    std::memcpy(words, &key, sizeof(Key));
    for (uint64_t w : words) {
      h = (h ^ w) * 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    }
    return h;
  }
  std::vector<Slot> slots_ = std::vector<Slot>(kBuckets * kWays);
  uint64_t clock_ = 0;
};

}  // namespace strata::cpu::detail
