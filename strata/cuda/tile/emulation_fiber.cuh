#pragma once
// Threads of emulation.cuh: functions with stacks of their own, which run in turn. A change of stack is a dozen
// instructions where swapcontext() is a call of the system; the address sanitizer must see it, so it keeps that.

#include <cstddef>
#include <cstdint>
#include <memory>

#if defined(__SANITIZE_ADDRESS__)
#define STRATA_FIBERS_BY_CONTEXT
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STRATA_FIBERS_BY_CONTEXT
#endif
#endif
#if !defined(__x86_64__) && !defined(STRATA_FIBERS_BY_CONTEXT)
#define STRATA_FIBERS_BY_CONTEXT
#endif
#ifdef STRATA_FIBERS_BY_CONTEXT
#include <ucontext.h>
#endif

namespace strata::cuda::tile::emulation {

#ifndef STRATA_FIBERS_BY_CONTEXT
// Keeps this stack in *from, with what a function must leave as it was, and goes on with another.
[[gnu::naked, gnu::noinline]] inline void switch_stacks(void** from, void* to) {
  asm(R"(
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret)");
}
#endif

class Fiber {
 public:
  static constexpr size_t kStackBytes = 256 << 10;

  /// enter() begins with this function, which never returns.
  void prepare(void (*function)()) {
    stack_.reset(new char[kStackBytes]);
#ifdef STRATA_FIBERS_BY_CONTEXT
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack_.get(), own_.uc_stack.ss_size = kStackBytes;
    makecontext(&own_, function, 0);
    own_.uc_stack.ss_size = 0;  // or the address sanitizer forgets what it knows of a stack at each switch
#else
    // As if the function had been called, from nowhere, and had changed stacks at once.
    const auto end = reinterpret_cast<uintptr_t>(stack_.get() + kStackBytes) / 16 * 16;
    void** const top = reinterpret_cast<void**>(end) - 2;
    *top = reinterpret_cast<void*>(function), own_ = top - 6;
#endif
  }
  void enter() {
    change(back_, own_);
  }
  void leave() {
    change(own_, back_);
  }

 private:
#ifdef STRATA_FIBERS_BY_CONTEXT
  static void change(ucontext_t& from, ucontext_t& to) {
    swapcontext(&from, &to);
  }
  ucontext_t own_{}, back_{};
#else
  static void change(void*& from, void* to) {
    switch_stacks(&from, to);
  }
  void *own_ = nullptr, *back_ = nullptr;
#endif
  std::unique_ptr<char[]> stack_;
};

}  // namespace strata::cuda::tile::emulation
