#include "strata/core/backend.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "strata/core/error.h"

namespace strata {

// Names live as long as the program, and are read without the lock below the count.
struct TierNames {
  static constinit inline std::mutex mutex;
  static constinit inline std::string_view names[kMostTiers] = {"own", "host", "device", "pinned", "meta"};
  static constinit inline std::atomic<int> count{5};
  static Tier at(int i) { return Tier(static_cast<uint8_t>(i)); }
};

Tier Tier::named(std::string_view name) {
  check(!name.empty(), "Tier", "the name is empty");
  const std::lock_guard lock(TierNames::mutex);
  const int count = TierNames::count.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i)
    if (TierNames::names[i] == name) return TierNames::at(i);
  check(count < kMostTiers, "Tier", "there is no room for '", name, "': there are ", count, " tiers");
  TierNames::names[count] = name;
  TierNames::count.store(count + 1, std::memory_order_release);
  return TierNames::at(count);
}

std::string_view Tier::name() const {
  return id_ < TierNames::count.load(std::memory_order_acquire) ? TierNames::names[id_] : std::string_view();
}

}  // namespace strata

namespace strata::memory {

namespace {
constinit std::mutex g_registering;

std::atomic<Backend*>& place(DeviceType device, Tier tier) {
  return detail::g_backends[static_cast<int>(device)][tier.id()];
}
bool is_own(const Backend& b) {
  return b.tier == (b.device == DeviceType::cpu    ? Tier::host
                    : b.device == DeviceType::cuda ? Tier::device
                                                   : Tier::meta);
}
}  // namespace

void register_backend(Backend& b) {
  const std::lock_guard lock(g_registering);
  check(place(b.device, b.tier).load(std::memory_order_relaxed) == nullptr, "register_backend",
        "there is a backend for memory '", b.tier, "' of ", Device{b.device, 0}, " already");
  place(b.device, b.tier).store(&b, std::memory_order_release);
  if (is_own(b)) place(b.device, Tier()).store(&b, std::memory_order_release);
}

Backend* find_backend(DeviceType device, Tier tier) {
  Backend* b = place(device, tier).load(std::memory_order_acquire);
  if (b == nullptr) [[unlikely]] {
    // Static objects of other files may come before those that register; and a program links only what it names.
    detail::register_builtin_backends();
    b = place(device, tier).load(std::memory_order_acquire);
  }
  return b;
}

Backend& backend(Device device, Tier tier) {
  Backend* b = find_backend(device.type, tier);
  if (b == nullptr) [[unlikely]] {
    const bool own = tier == Tier();
    throw DeviceError("allocate", cat("this program has no ", own ? "" : cat("'", tier, "' "), "memory for tensors on ",
                                      device, ": no backend is registered"));
  }
  return *b;
}

std::vector<Backend*> backends() {
  find_backend(DeviceType::cpu);
  std::vector<Backend*> all;
  for (int d = 0; d < kNumDeviceTypes; ++d)
    for (int t = 1; t < kMostTiers; ++t)
      if (Backend* b = detail::g_backends[d][t].load(std::memory_order_acquire)) all.push_back(b);
  return all;
}

Backend& detail::own_backend(Device device, Tier& tier) {
  if (Backend* b = find_backend(device.type, tier)) return *b;
  tier = Tier();
  return backend(device);
}

namespace {
[[noreturn]] void not_movable(const Backend& b) {
  throw ValueError(b.name, "its blocks do not move");
}
}  // namespace

void Backend::copy_in(Device, void* to, const void* from, size_t nbytes) {
  std::memcpy(to, from, nbytes);
}
void Backend::copy_out(Device, void* to, const void* from, size_t nbytes) {
  std::memcpy(to, from, nbytes);
}
std::byte* Backend::fetch(Device, void*) {
  not_movable(*this);
}
void Backend::leave(Device, void*, bool) {
  not_movable(*this);
}
void Backend::prefetch(Device, void*) {
  not_movable(*this);
}
bool Backend::resident(Device, const void*) {
  not_movable(*this);
}
int64_t Backend::set_limit(Device, int64_t) {
  throw ValueError("set_limit", cat("memory of kind '", name, "' has no limit that can be set"));
}

// ---- on whose behalf

std::string_view name_of(Tag tag) {
  constexpr std::string_view names[kNumTags] = {"parameter",  "gradient", "optimizer",
                                                "activation", "data",     "workspace"};
  return names[static_cast<int>(tag)];
}

const std::string* detail::module_name(std::string_view name) {
  static std::mutex mutex;
  static auto* names = new std::set<std::string, std::less<>>();  // blocks point into it for as long as they live
  std::lock_guard lock(mutex);
  auto it = names->find(name);
  if (it == names->end()) it = names->emplace(name).first;
  return &*it;
}

ModuleScope::ModuleScope(std::string_view name) : previous_(detail::t_caller.module) {
  detail::t_caller.module = detail::module_name(name);
}
ModuleScope::~ModuleScope() {
  detail::t_caller.module = previous_;
}

// The same few pairs come again and again, so each thread remembers the last ones.
const std::string* holder() {
  struct Known {
    const std::string_view* op;
    const std::string* module;
    const std::string* text;
  };
  static thread_local Known known[64];
  const std::string_view* op = detail::t_caller.op;
  const std::string* module = detail::t_caller.module;
  if (!op && !module) return nullptr;
  const auto mix = reinterpret_cast<uintptr_t>(op) / 8 * 31 + reinterpret_cast<uintptr_t>(module) / 8;
  Known& k = known[(mix ^ mix >> 6 ^ mix >> 12) % 64];
  if (k.text && k.op == op && k.module == module) return k.text;
  static std::mutex mutex;
  static auto* names = new std::set<std::string>;
  std::lock_guard lock(mutex);
  k = {op, module, &*names->insert(!op ? *module : !module ? std::string(*op) : cat(*op, " in ", *module)).first};
  return k.text;
}

}  // namespace strata::memory
