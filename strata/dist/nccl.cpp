#include "strata/dist/nccl_inl.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include <dlfcn.h>

#include "strata/core/error.h"
#include "strata/dist/peer/peer_sum_kernel.h"
#include "strata/dist/store.h"

namespace strata::distributed::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOp = "nccl";
constexpr int kOldest = 21800, kNextMajor = 30000;

// Where Python environments keep their packages, as far as this process can know.
std::vector<fs::path> package_folders() {
  std::vector<fs::path> roots;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') roots.emplace_back(value);
  }
  if (const char* home = std::getenv("HOME"); home != nullptr) roots.push_back(fs::path(home) / ".local");
  roots.emplace_back("/usr/local");
  roots.emplace_back("/usr");
  std::vector<fs::path> found;
  Dl_info info{};
  // As a Python module this code lies in a package beside the one that is looked for.
  if (dladdr(reinterpret_cast<const void*>(&package_folders), &info) != 0 && info.dli_fname != nullptr)
    found.push_back(fs::path(info.dli_fname).parent_path().parent_path());
  for (const fs::path& root : roots) {
    std::error_code error;
    std::vector<fs::path> here;
    for (const auto& entry : fs::directory_iterator(root / "lib", error)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) here.push_back(entry.path() / packages);
    }
    std::sort(here.begin(), here.end());
    found.insert(found.end(), here.begin(), here.end());
  }
  return found;
}

template <class F>
void find(void* library, const std::string& file, F& function, const std::string& name) {
  function = reinterpret_cast<F>(dlsym(library, name.c_str()));
  check<DistributedError>(function != nullptr, kOp, file, " has no ", name);
}

Nccl load() {
  // NCCL reads its settings when it is first called. Multicast can leave a machine's switch in a state that outlives
  // the program; buffers of graphs are none that NCCL could map into other processes.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
  std::vector<std::string> files;
  if (const char* own = std::getenv("STRATA_NCCL"); own != nullptr && *own != '\0') {
    files.emplace_back(own);
  } else {
    files.emplace_back("libnccl.so.2");
    for (const fs::path& folder : package_folders()) files.push_back(folder / "nvidia/nccl/lib/libnccl.so.2");
  }
  std::string tried;
  void* library = nullptr;
  Nccl n{};
  for (const std::string& file : files) {
    std::error_code error;
    const bool path = file.find('/') != std::string::npos;
    // What is there and does not load says why.
    if (path && !fs::exists(file, error)) {
      tried += "\n  " + file + ": not there";
      continue;
    }
    library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      n.file = file;
      break;
    }
    const char* const why = dlerror();
    tried += "\n  " + file + ": " + (why != nullptr ? why : "does not load");
  }
  if (library == nullptr) {
    throw DistributedError(kOp,
                           cat("ranks on cards need NVIDIA's NCCL 2 (libnccl.so.2: the system's package libnccl2 or "
                               "PyPI's nvidia-nccl-cu13; STRATA_NCCL names a file of one's own). Looked for:",
                               tried));
  }
#define STRATA_FIND(name) find(library, n.file, n.name, "nccl" #name)
  STRATA_FIND(GetVersion);
  STRATA_FIND(GetUniqueId);
  STRATA_FIND(CommInitRankConfig);
  STRATA_FIND(CommDestroy);
  STRATA_FIND(CommAbort);
  STRATA_FIND(CommGetAsyncError);
  STRATA_FIND(GetErrorString);
  STRATA_FIND(GetLastError);
  STRATA_FIND(GroupStart);
  STRATA_FIND(GroupEnd);
  STRATA_FIND(AllReduce);
  STRATA_FIND(Reduce);
  STRATA_FIND(Broadcast);
  STRATA_FIND(AllGather);
  STRATA_FIND(ReduceScatter);
  STRATA_FIND(Send);
  STRATA_FIND(Recv);
#undef STRATA_FIND
  check<DistributedError>(n.GetVersion(&n.version) == kNcclSuccess, kOp, n.file, " does not tell its version");
  check<DistributedError>(n.version >= kOldest && n.version < kNextMajor, kOp, n.file, " has version ",
                          n.version / 10000, ".", n.version / 100 % 100, ".", n.version % 100,
                          "; from 2.18 on, and below 3, is needed");
  return n;
}

int type_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::boolean:
      return kNcclUint8;  // 0 or 1: min is all, max is any
    case DType::i8:
      return kNcclInt8;
    case DType::i32:
      return kNcclInt32;
    case DType::i64:
      return kNcclInt64;
    case DType::f16:
      return kNcclFloat16;
    case DType::bf16:
      return kNcclBfloat16;
    case DType::f32:
      return kNcclFloat32;
    case DType::f64:
      return kNcclFloat64;
    default:
      break;
  }
  throw DTypeError(kOp, cat("has no reduction of ", dtype));
}

int op_of(Reduction r) {
  switch (r) {
    case Reduction::sum:
      return kNcclSum;
    case Reduction::avg:
      return kNcclAvg;
    case Reduction::min:
      return kNcclMin;
    case Reduction::max:
      return kNcclMax;
    case Reduction::product:
      break;
  }
  return kNcclProd;
}

size_t elements(int64_t count) {
  return static_cast<size_t>(count);
}

}  // namespace

const Nccl& nccl() {
  // Never unloaded: threads of its own may run until the process ends.
  static const Nccl* const loaded = new Nccl(load());
  return *loaded;
}

NcclCollectives::NcclCollectives(const NcclId& id, int rank, int size, std::chrono::milliseconds patience,
                                 std::function<void(const std::function<void()>&)> within, int blocks)
    : n_(nccl()), rank_(rank), size_(size), within_(std::move(within)) {
  // A rank that does not come is waited for without end inside: the thread is left behind then.
  struct Attempt {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    int result = kNcclSuccess;
    NcclComm comm = nullptr;
    std::string error;
  };
  const auto attempt = std::make_shared<Attempt>();
  std::thread([attempt, id, rank, size, blocks, n = &n_, card = within_] {
    NcclConfig config;
    if (blocks > 0) config.most_blocks = blocks;
    NcclComm comm = nullptr;
    int result = kNcclSuccess;
    std::string error;
    try {
      card([&] { result = n->CommInitRankConfig(&comm, size, id, rank, &config); });
    } catch (const std::exception& e) {
      error = e.what();
    }
    const std::lock_guard lock(attempt->mutex);
    attempt->comm = comm;
    attempt->result = result;
    attempt->error = error;
    attempt->done = true;
    attempt->changed.notify_all();
  }).detach();
  std::unique_lock lock(attempt->mutex);
  check<DistributedError>(attempt->changed.wait_for(lock, patience, [&] { return attempt->done; }), kOp,
                          "the ranks' cards are not connected after ", patience.count() / 1000, " s");
  check<DistributedError>(attempt->error.empty(), kOp, attempt->error);
  comm_ = attempt->comm;
  call("CommInitRank", attempt->result);
}

void NcclCollectives::call(const char* what, int result) {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  const char* const more = n_.GetLastError(nullptr);
  throw DistributedError(kOp, cat("nccl", what, ": ", n_.GetErrorString(result),
                                  more != nullptr && *more != '\0' ? cat(" (", more, ")") : std::string()));
}

std::string NcclCollectives::way() const {
  std::string text = cat("NCCL ", n_.version / 10000, ".", n_.version / 100 % 100, ".", n_.version % 100);
  if (copies_) text += "; large gathers and reduce_scatters by copy engines";
  if (peers_) return cat(text, "; sums of up to ", peer::kMostBytes >> 10, " KiB over memory that the ranks map");
  return why_.empty() ? text : cat(text, "; small sums too, as there is no memory that the ranks map: ", why_);
}

NcclComm NcclCollectives::comm() const {
  check<DistributedError>(!gone_, kOp, "the connections between the ranks' cards were closed");
  return comm_;
}

template <class F>
void NcclCollectives::grouped(F&& calls) {
  call("GroupStart", n_.GroupStart());
  try {
    calls();
  } catch (...) {
    n_.GroupEnd();
    throw;
  }
  call("GroupEnd", n_.GroupEnd());
}

// Frees the communicator on a thread that is left behind where that takes long.
void NcclCollectives::end(int (*free)(NcclComm), std::chrono::milliseconds patience) noexcept {
  if (gone_.exchange(true) || comm_ == nullptr) return;
  try {
    struct Ended {
      std::mutex mutex;
      std::condition_variable changed;
      bool done = false;
    };
    const auto ended = std::make_shared<Ended>();
    std::thread([ended, free, comm = comm_, card = within_] {
      try {
        card([&] { free(comm); });
      } catch (const std::exception&) {  // a card that failed: nothing to end there
      }
      const std::lock_guard lock(ended->mutex);
      ended->done = true;
      ended->changed.notify_all();
    }).detach();
    std::unique_lock lock(ended->mutex);
    ended->changed.wait_for(lock, patience, [&] { return ended->done; });
  } catch (const std::exception&) {
    // No thread is to be had: the process is at its end.
  }
}

void NcclCollectives::abort() noexcept {
  if (peers_) peers_->abort();
  if (copies_) copies_->abort();
  // It sets a flag that ends kernels, and then waits until no graph holds calls any more, which may be never.
  end(n_.CommAbort, std::chrono::milliseconds(1000));
}

void NcclCollectives::close() noexcept {
  end(n_.CommDestroy, std::chrono::milliseconds(3000));
}

std::string NcclCollectives::error() {
  if (gone_ || comm_ == nullptr) return {};
  int result = kNcclSuccess;
  if (n_.CommGetAsyncError(comm_, &result) != kNcclSuccess) return {};
  if (result == kNcclSuccess || result == kNcclInProgress) return {};
  return cat("NCCL says: ", n_.GetErrorString(result));
}

void NcclCollectives::all_reduce(void* data, int64_t count, DType dtype, Reduction r) {
  if (peers_ && PeerSums::takes(count, dtype)) {
    (void)comm();  // not after an end
    return peers_->all_reduce(data, count, dtype, r, stream_);
  }
  call("AllReduce", n_.AllReduce(data, data, elements(count), type_of(dtype), op_of(r), comm(), stream_));
}

void NcclCollectives::reduce(void* data, int64_t count, DType dtype, Reduction r, int root) {
  call("Reduce", n_.Reduce(data, data, elements(count), type_of(dtype), op_of(r), root, comm(), stream_));
}

void NcclCollectives::reduce_scatter(void* out, const void* in, int64_t count, DType dtype, Reduction r) {
  if (copies_ && PeerCopies::takes(count, dtype, r)) {
    (void)comm();
    return copies_->reduce_scatter(out, in, count, dtype, r, stream_);
  }
  call("ReduceScatter", n_.ReduceScatter(in, out, elements(count), type_of(dtype), op_of(r), comm(), stream_));
}

void NcclCollectives::broadcast(void* data, size_t bytes, int root) {
  call("Broadcast", n_.Broadcast(data, data, bytes, kNcclInt8, root, comm(), stream_));
}

void NcclCollectives::all_gather(void* out, const void* in, size_t bytes) {
  if (copies_ && PeerCopies::takes(bytes)) {
    (void)comm();
    return copies_->all_gather(out, in, bytes, stream_);
  }
  call("AllGather", n_.AllGather(in, out, bytes, kNcclInt8, comm(), stream_));
}

void NcclCollectives::all_to_all(void* out, std::span<const size_t> out_bytes, const void* in,
                                 std::span<const size_t> in_bytes) {
  grouped([&] {
    auto* to = static_cast<std::byte*>(out);
    const auto* from = static_cast<const std::byte*>(in);
    for (int p = 0; p < size_; ++p) {
      const size_t gets = out_bytes[static_cast<size_t>(p)], gives = in_bytes[static_cast<size_t>(p)];
      if (gives > 0) call("Send", n_.Send(from, gives, kNcclInt8, p, comm(), stream_));
      if (gets > 0) call("Recv", n_.Recv(to, gets, kNcclInt8, p, comm(), stream_));
      to += gets;
      from += gives;
    }
  });
}

void NcclCollectives::send(const void* data, size_t bytes, int to) {
  if (bytes > 0) call("Send", n_.Send(data, bytes, kNcclInt8, to, comm(), stream_));
}

void NcclCollectives::receive(void* data, size_t bytes, int from) {
  if (bytes > 0) call("Recv", n_.Recv(data, bytes, kNcclInt8, from, comm(), stream_));
}

void NcclCollectives::shift(void* out, const void* in, size_t bytes, int to, int from) {
  if (bytes == 0) return;
  grouped([&] {
    call("Send", n_.Send(in, bytes, kNcclInt8, to, comm(), stream_));
    call("Recv", n_.Recv(out, bytes, kNcclInt8, from, comm(), stream_));
  });
}

}  // namespace strata::distributed::detail
