// For tests: a library with the functions of NCCL that the engine calls, on the host's memory, between processes or
// threads of one machine. What it shares with NCCL is what can go wrong: a rank whose peers call something else, or do
// not come, waits until its communicator is aborted, and then returns as if it had succeeded.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "strata/core/dtype.h"
#include "strata/dist/played_stream_test_util.h"

namespace {

using strata::distributed::PlayedStream;

struct Id {
  char bytes[128];
};

struct Comm {
  int rank = 0, size = 0;
  std::vector<int> to, from;  // named pipes, by peer
  std::atomic<bool> aborted{false};
};

struct Message {
  Comm* comm;
  int peer;
  bool sends;
  char* data;
  size_t bytes;
};

constexpr int kSuccess = 0, kInvalidArgument = 4;
thread_local int t_depth = 0;
thread_local std::vector<Message> t_group;
thread_local void* t_stream = nullptr;  // of the group's last message

// What a call does, on its stream or, where it has none, now.
int on(void* stream, std::function<void()> work) {
  if (stream == nullptr) {
    work();
  } else {
    static_cast<PlayedStream*>(stream)->queue(std::move(work));
  }
  return kSuccess;
}

// Messages to and from one peer in their order, those of different peers at once.
void move(std::vector<Message> all) {
  std::map<std::pair<int, bool>, size_t> done;  // of the first message of each peer that is not done
  while (!all.empty()) {
    bool moved = false;
    std::map<std::pair<int, bool>, bool> busy;
    for (auto m = all.begin(); m != all.end();) {
      const std::pair<int, bool> way{m->peer, m->sends};
      if (std::exchange(busy[way], true)) {
        ++m;
        continue;
      }
      const int pipe =
          m->sends ? m->comm->to[static_cast<size_t>(m->peer)] : m->comm->from[static_cast<size_t>(m->peer)];
      size_t& at = done[way];
      const ssize_t n = m->bytes == at ? 0
                        : m->sends     ? write(pipe, m->data + at, m->bytes - at)
                                       : read(pipe, m->data + at, m->bytes - at);
      if (n > 0) {
        at += static_cast<size_t>(n);
        moved = true;
      }
      if (at == m->bytes) {
        at = 0;
        m = all.erase(m);
        busy[way] = false;
        moved = true;
      } else {
        ++m;
      }
    }
    if (moved) continue;
    if (all.front().comm->aborted) return;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void move_group() {
  on(t_stream, [all = std::exchange(t_group, {})] { move(all); });
}
void queue(Message m, void* stream) {
  t_group.push_back(m);
  t_stream = stream;
  if (t_depth == 0) move_group();
}

char* bytes_of(const void* p) {
  return static_cast<char*>(const_cast<void*>(p));
}

constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

// Everybody's `bytes`, by rank.
std::vector<std::vector<char>> gathered(Comm* c, const void* in, size_t bytes) {
  std::vector<std::vector<char>> all(static_cast<size_t>(c->size), std::vector<char>(bytes));
  std::vector<Message> messages;
  for (int p = 0; p < c->size; ++p) {
    messages.push_back({c, p, true, bytes_of(in), bytes});
    messages.push_back({c, p, false, all[static_cast<size_t>(p)].data(), bytes});
  }
  move(messages);
  return all;
}

template <class T, class Wide>
void reduce(const std::vector<std::vector<char>>& all, size_t from, size_t count, int op, void* out) {
  for (size_t i = 0; i < count; ++i) {
    Wide sum{};
    for (size_t r = 0; r < all.size(); ++r) {
      T one;
      std::memcpy(&one, all[r].data() + (from + i) * sizeof(T), sizeof(T));
      const Wide v = static_cast<Wide>(one);
      if (r == 0)
        sum = v;
      else if (op == 0 || op == 4)
        sum = static_cast<Wide>(sum + v);
      else if (op == 1)
        sum = static_cast<Wide>(sum * v);
      else if (op == 2)
        sum = std::max(sum, v);
      else
        sum = std::min(sum, v);
    }
    if (op == 4) sum = static_cast<Wide>(sum / static_cast<Wide>(all.size()));
    const T result = static_cast<T>(sum);
    std::memcpy(static_cast<char*>(out) + i * sizeof(T), &result, sizeof(T));
  }
}

void reduce_now(Comm* c, const void* in, size_t total, size_t from, size_t count, int type, int op, void* out) {
  const auto all = gathered(c, in, total * kSizes[type]);
  if (c->aborted || out == nullptr) return;
  switch (type) {
    case 0:
      reduce<int8_t, int8_t>(all, from, count, op, out);
      break;
    case 1:
      reduce<uint8_t, uint8_t>(all, from, count, op, out);
      break;
    case 2:
      reduce<int32_t, int32_t>(all, from, count, op, out);
      break;
    case 4:
      reduce<int64_t, int64_t>(all, from, count, op, out);
      break;
    case 6:
      reduce<strata::Half, float>(all, from, count, op, out);
      break;
    case 7:
      reduce<float, float>(all, from, count, op, out);
      break;
    case 8:
      reduce<double, double>(all, from, count, op, out);
      break;
    case 9:
      reduce<strata::BFloat16, float>(all, from, count, op, out);
      break;
    default:
      break;
  }
}

int reduced(Comm* c, const void* in, size_t total, size_t from, size_t count, int type, int op, void* out,
            void* stream) {
  if (type < 0 || type >= 10 || type == 3 || type == 5 || op < 0 || op > 4) return kInvalidArgument;
  return on(stream, [=] { reduce_now(c, in, total, from, count, type, op, out); });
}

}  // namespace

extern "C" {
#define STRATA_FAKE __attribute__((visibility("default")))

// What an abort leaves to those who are inside is freed by nobody, and is no leak.
static std::vector<Comm*>* kept() {
  static auto* const all = new std::vector<Comm*>;
  return all;
}

STRATA_FAKE int ncclGetVersion(int* version) {
  const char* const told = std::getenv("STRATA_FAKE_NCCL_VERSION");
  *version = told != nullptr ? std::atoi(told) : 22803;
  return kSuccess;
}

STRATA_FAKE int ncclGetUniqueId(Id* id) {
  const char* const folder = std::getenv("TMPDIR");
  const std::string name = std::string(folder != nullptr ? folder : "/tmp") + "/strata-fake-XXXXXX";
  if (name.size() >= sizeof id->bytes) return kInvalidArgument;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->bytes, name.data(), name.size());
  return mkdtemp(id->bytes) != nullptr ? kSuccess : kInvalidArgument;
}

STRATA_FAKE int ncclCommInitRankConfig(Comm** comm, int size, Id id, int rank, void*) {
  auto* const c = new Comm;
  kept()->push_back(c);
  c->rank = rank;
  c->size = size;
  const std::string folder = id.bytes;
  const auto pipe_of = [&](int from, int to) {
    const std::string name = folder + "/" + std::to_string(from) + "-" + std::to_string(to);
    mkfifo(name.c_str(), 0600);
    return open(name.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  };
  for (int p = 0; p < size; ++p) {
    c->to.push_back(pipe_of(rank, p));
    c->from.push_back(pipe_of(p, rank));
  }
  char here = 1;
  gathered(c, &here, 1);
  if (rank == 0) {  // all have what they need
    for (int a = 0; a < size; ++a) {
      for (int b = 0; b < size; ++b) unlink((folder + "/" + std::to_string(a) + "-" + std::to_string(b)).c_str());
    }
    rmdir(folder.c_str());
  }
  *comm = c;
  return kSuccess;
}

STRATA_FAKE int ncclCommDestroy(Comm* c) {
  // As NCCL does while a graph holds calls.
  if (std::getenv("STRATA_FAKE_NCCL_HOLDS") != nullptr) std::this_thread::sleep_for(std::chrono::hours(1));
  for (const int pipe : c->to) close(pipe);
  for (const int pipe : c->from) close(pipe);
  std::erase(*kept(), c);
  delete c;
  return kSuccess;
}
STRATA_FAKE int ncclCommAbort(Comm* c) {
  c->aborted = true;  // whoever is inside still uses it
  return kSuccess;
}
STRATA_FAKE int ncclCommGetAsyncError(Comm*, int* result) {
  *result = kSuccess;
  return kSuccess;
}
STRATA_FAKE const char* ncclGetErrorString(int result) {
  return result == kSuccess ? "no error" : "invalid argument";
}
STRATA_FAKE const char* ncclGetLastError(Comm*) {
  return "this library only plays NCCL";
}
STRATA_FAKE int ncclGroupStart() {
  ++t_depth;
  return kSuccess;
}
STRATA_FAKE int ncclGroupEnd() {
  if (--t_depth == 0 && !t_group.empty()) move_group();
  return kSuccess;
}

STRATA_FAKE int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, Comm* c, void* stream) {
  return reduced(c, in, count, 0, count, type, op, out, stream);
}
STRATA_FAKE int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, Comm* c, void* stream) {
  return reduced(c, in, count, 0, count, type, op, c->rank == root ? out : nullptr, stream);
}
STRATA_FAKE int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, Comm* c, void* stream) {
  const auto n = static_cast<size_t>(c->size);
  return reduced(c, in, n * count, static_cast<size_t>(c->rank) * count, count, type, op, out, stream);
}
STRATA_FAKE int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, Comm* c, void* stream) {
  const size_t bytes = count * kSizes[type];
  std::vector<Message> messages;
  for (int p = 0; p < c->size; ++p) {
    if (c->rank == root && p != root) messages.push_back({c, p, true, bytes_of(in), bytes});
  }
  if (c->rank != root) messages.push_back({c, root, false, bytes_of(out), bytes});
  return on(stream, [messages] { move(messages); });
}
STRATA_FAKE int ncclAllGather(const void* in, void* out, size_t count, int type, Comm* c, void* stream) {
  const size_t bytes = count * kSizes[type];
  return on(stream, [=] {
    const auto all = gathered(c, in, bytes);
    for (size_t r = 0; r < all.size() && bytes > 0; ++r) std::memcpy(bytes_of(out) + r * bytes, all[r].data(), bytes);
  });
}
STRATA_FAKE int ncclSend(const void* in, size_t count, int type, int to, Comm* c, void* stream) {
  queue({c, to, true, bytes_of(in), count * kSizes[type]}, stream);
  return kSuccess;
}
STRATA_FAKE int ncclRecv(void* out, size_t count, int type, int from, Comm* c, void* stream) {
  queue({c, from, false, bytes_of(out), count * kSizes[type]}, stream);
  return kSuccess;
}
}
