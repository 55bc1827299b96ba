// What programs call of this process's part in its job.

#include <cstdlib>
#include <memory>
#include <mutex>

#include "strata/core/error.h"
#include "strata/dist/world_inl.h"

namespace strata::distributed {

namespace {
std::mutex g_mutex;
std::unique_ptr<World> g_world;
// Before init() a process is a job of one, with groups of one.
World& world() {
  const std::lock_guard lock(g_mutex);
  static World alone{InitOptions{.job = Job{}}};
  return g_world ? *g_world : alone;
}
}  // namespace

void raise_failure() {
  throw DistributedError("a collective on a card", world().failure());
}

void init(const InitOptions& options) {
  const std::lock_guard lock(g_mutex);
  check(g_world == nullptr, "init", "this process has joined its job already");
  g_world = std::make_unique<World>(options);
  // Of a program that ends without shutdown(): before what the HTTP client keeps for the program's length, which was
  // made with the first request.
  static const int at_exit = std::atexit([] { g_world = nullptr; });
  (void)at_exit;
}
bool initialized() {
  const std::lock_guard lock(g_mutex);
  return g_world != nullptr;
}
constinit thread_local ThreadRank* t_thread_rank = nullptr;

int rank() {
  return t_thread_rank ? t_thread_rank->rank() : world().job().rank;
}
int size() {
  return t_thread_rank ? t_thread_rank->mesh().size() : world().job().size;
}
const Job& job() {
  return world().job();
}

void set_mesh(const Mesh& mesh) {
  world().set_mesh(mesh);
}
Mesh mesh() {
  return t_thread_rank ? t_thread_rank->mesh() : world().mesh();
}
Group& group(std::string_view name) {
  if (t_thread_rank) return t_thread_rank->group(name);
  return world().group(name);
}
Store& store() {
  check<DistributedError>(initialized(), "store", "there is none before distributed::init()");
  return world().store();
}
FlightRecorder& recorder() {
  // Heartbeats go on until the process ends, after what is destroyed then.
  static FlightRecorder* const recorder = new FlightRecorder;
  return *recorder;
}
bool can_rejoin() {
  return world().can_rejoin();
}
void rejoin(std::chrono::milliseconds patience) {
  world().rejoin(patience);
}
void shutdown() {
  std::unique_ptr<World> ending;
  {
    const std::lock_guard lock(g_mutex);
    if (!g_world) return;
  }
  world().leave();
  const std::lock_guard lock(g_mutex);
  ending = std::move(g_world);
}

std::shared_ptr<detail::DeviceGroup> detail::make_device_group(const std::string& name, const std::vector<int>& ranks,
                                                               int rank, Device device,
                                                               const DeviceGroupOptions& options) {
  return world().device_group(name, ranks, rank, device, options);
}
void detail::check_job(std::string_view op) {
  world().check_job(op);
}

std::string failure_of(const std::string& group, const std::vector<int>& ranks, std::string_view error) {
  return world().failure_of(group, ranks, error);
}

}  // namespace strata::distributed
