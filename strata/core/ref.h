#pragma once
// Ref<T>: an intrusive, thread-safe reference-counted pointer, one word wide.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace strata {

/// Base of a reference-counted object. Copying the object does not copy its count.
struct RefCounted {
  mutable std::atomic<uint32_t> refs{0};
  RefCounted() = default;
  RefCounted(const RefCounted&) {}
  RefCounted& operator=(const RefCounted&) { return *this; }
};

/// Pointer to a RefCounted T; the last one calls `ref_dispose(T*)`, found by argument-dependent lookup.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* p) : p_(p) { acquire(); }
  Ref(const Ref& o) : p_(o.p_) { acquire(); }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(const Ref<U>& o) : p_(o.get()) { acquire(); }
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(Ref<U>&& o)
  noexcept : p_(o.release()) {}
  ~Ref() { drop(); }
  Ref& operator=(const Ref& o) {  // NOLINT(bugprone-unhandled-self-assignment): swapping with a copy handles it
    Ref(o).swap(*this);
    return *this;
  }
  Ref& operator=(Ref&& o) noexcept {
    Ref(std::move(o)).swap(*this);
    return *this;
  }
  void swap(Ref& o) noexcept { std::swap(p_, o.p_); }
  void reset() { Ref().swap(*this); }
  T* get() const { return p_; }
  T* release() { return std::exchange(p_, nullptr); }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }
  /// Owners now. One means that nobody else can read or write the object any more.
  uint32_t use_count() const { return p_ ? p_->refs.load(std::memory_order_acquire) : 0; }
  /// Takes over a reference that is counted already.
  static Ref adopt(T* counted) {
    Ref r;
    r.p_ = counted;
    return r;
  }

 private:
  void acquire() {
    if (p_) p_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  void drop() {
    // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): every constructor sets it
    if (p_ && p_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) ref_dispose(p_);
  }
  T* p_ = nullptr;
};

/// A pointer that one thread sets, once, and all others then read: how a shared object gets a part that it begins
/// without.
template <class T>
class OncePtr {
 public:
  OncePtr() = default;
  OncePtr(const OncePtr&) {}  ///< a copy of the object begins without it
  OncePtr& operator=(const OncePtr&) = delete;
  T* get() const { return p_.load(std::memory_order_acquire); }
  T* operator->() const { return get(); }
  explicit operator bool() const { return get() != nullptr; }
  /// Sets `fresh`, or deletes it where another thread was first; returns what is there.
  T* set(T* fresh) {
    T* old = nullptr;
    if (p_.compare_exchange_strong(old, fresh, std::memory_order_acq_rel, std::memory_order_acquire)) return fresh;
    delete fresh;
    return old;
  }

 private:
  std::atomic<T*> p_{nullptr};
};

/// A new T.
template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace strata
