// The transport over MPI: a module (strata/dist/transport.h). For fabrics that an MPI serves and sockets do not; the
// processes must have been started by that MPI's launcher. Messages alone are MPI's: collectives are the engine's own.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <mpi.h>

#include "strata/dist/transport.h"

namespace strata::distributed {
namespace {

using Clock = std::chrono::steady_clock;

// MPI counts in int: larger messages go in pieces.
constexpr size_t kPiece = size_t{1} << 30;

// MPI_Finalize() waits for all processes and for what they have begun: it is left out once a transport was aborted,
// here or at a peer, and where one is in use when the process ends.
std::atomic<bool> g_failed{false};
std::atomic<int> g_open{0};

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(call) + ": " + std::string(text, static_cast<size_t>(length)));
}

void finalize() {
  int done = 0;
  MPI_Finalized(&done);
  if (done == 0 && !g_failed && g_open == 0) MPI_Finalize();
}

// Once a process; it stays so until the process ends, as MPI cannot be begun twice.
void begin_mpi() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Open MPI's own modules look for its library's symbols among the global ones.
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) != 0 && info.dli_fname != nullptr) {
      dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    }
    int begun = 0;
    MPI_Initialized(&begun);
    int level = MPI_THREAD_SINGLE;
    if (begun == 0) {
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
      std::atexit(finalize);
    } else {
      MPI_Query_thread(&level);
    }
    if (level != MPI_THREAD_MULTIPLE) throw std::runtime_error("this MPI does not serve several threads");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  });
}

class MpiTransport;

class MpiTransfer final : public Transfer {
 public:
  MpiTransfer(MpiTransport& transport, std::vector<MPI_Request> requests)
      : transport_(transport), requests_(std::move(requests)) {}
  ~MpiTransfer() override;
  void wait() override;

 private:
  bool done() {
    int all = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    return all != 0;
  }

  MpiTransport& transport_;
  std::vector<MPI_Request> requests_;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(const TransportRequest& request, AddressBook& book)
      : rank_(request.rank), size_(request.size), timeout_(request.timeout) {
    begin_mpi();
    int world = 0, mine = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(MPI_COMM_WORLD, &mine);
    if (world < size_) {
      throw std::runtime_error("MPI has " + std::to_string(world) + " processes, the group " + std::to_string(size_) +
                               ": start them with this MPI's launcher (mpirun, srun --mpi)");
    }
    book.set("mpi/" + std::to_string(rank_), std::to_string(mine));
    std::vector<int> members;
    for (int r = 0; r < size_; ++r) members.push_back(std::stoi(book.get("mpi/" + std::to_string(r))));
    MPI_Group all = MPI_GROUP_NULL, part = MPI_GROUP_NULL;
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(all, size_, members.data(), &part), "MPI_Group_incl");
    // Groups that are made at the same time are told apart by their first member: a process is in one of each kind.
    const int code = MPI_Comm_create_group(MPI_COMM_WORLD, part, members[0], &comm_);
    MPI_Group_free(&part);
    MPI_Group_free(&all);
    check_mpi(code, "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    int* most = nullptr;
    int found = 0;
    MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&most), &found);
    most_tag_ = found != 0 ? *most : 32767;  // what the standard promises
    ++g_open;
  }
  // The communicator is MPI's until the process ends: freeing it would wait for the others.
  ~MpiTransport() override { --g_open; }

  std::unique_ptr<Transfer> send(int to, uint64_t channel, const void* data, size_t bytes) override {
    return begin(channel, bytes, [&](size_t at, int count, int tag, MPI_Request* r) {
      return MPI_Isend(static_cast<const char*>(data) + at, count, MPI_BYTE, to, tag, comm_, r);
    });
  }
  std::unique_ptr<Transfer> receive(int from, uint64_t channel, void* data, size_t bytes) override {
    return begin(channel, bytes, [&](size_t at, int count, int tag, MPI_Request* r) {
      return MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, from, tag, comm_, r);
    });
  }
  // There is no connection to close: peers are told by a message of nothing, which their waits look for.
  void abort() noexcept override {
    if (aborted_.exchange(true)) return;
    g_failed = true;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      if (MPI_Isend(nullptr, 0, MPI_BYTE, r, kAbortTag, comm_, &request) == MPI_SUCCESS) MPI_Request_free(&request);
    }
  }

  // Throws where this group is over, here or at a peer.
  void check_alive() {
    int told = 0;
    MPI_Status status{};
    if (!aborted_) check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kAbortTag, comm_, &told, &status), "MPI_Iprobe");
    if (told != 0) {
      g_failed = true;
      throw std::runtime_error("rank " + std::to_string(status.MPI_SOURCE) +
                               " of the group has closed its connections");
    }
    if (aborted_) throw std::runtime_error("the connections were closed");
  }
  bool aborted() const { return aborted_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  static constexpr int kAbortTag = 0;

  template <class F>
  std::unique_ptr<Transfer> begin(uint64_t channel, size_t bytes, F call) {
    if (aborted_) throw std::runtime_error("the connections were closed");
    if (channel >= static_cast<uint64_t>(most_tag_)) {
      throw std::runtime_error("channel " + std::to_string(channel) + " is past this MPI's largest tag, " +
                               std::to_string(most_tag_));
    }
    const int tag = static_cast<int>(channel) + 1;
    std::vector<MPI_Request> requests;
    for (size_t at = 0; at == 0 || at < bytes; at += kPiece) {
      requests.push_back(MPI_REQUEST_NULL);
      check_mpi(call(at, static_cast<int>(std::min(kPiece, bytes - at)), tag, &requests.back()),
                "MPI_Isend or MPI_Irecv");
    }
    return std::make_unique<MpiTransfer>(*this, std::move(requests));
  }

  int rank_, size_, most_tag_ = 0;
  std::chrono::milliseconds timeout_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::atomic<bool> aborted_{false};
};

void MpiTransfer::wait() {
  const Clock::time_point end = Clock::now() + transport_.timeout();
  for (int turn = 0; !done(); ++turn) {
    transport_.check_alive();
    if (Clock::now() > end) {
      throw std::runtime_error("nothing came within " + std::to_string(transport_.timeout().count()) + " ms");
    }
    // MPI goes on in its calls alone. Ranks may share a core: who waits for long leaves it.
    if (turn < 200) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

// What was not received is withdrawn, and so is the memory. A send whose receiver has not begun is left to MPI, which
// reads it when the receiver begins: that does not happen in a group that is over.
MpiTransfer::~MpiTransfer() {
  for (MPI_Request& r : requests_) {
    int done = 1;
    if (r == MPI_REQUEST_NULL || MPI_Test(&r, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0) continue;
    MPI_Cancel(&r);
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(200);
    while (MPI_Test(&r, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0 && Clock::now() < end) {
      std::this_thread::yield();
    }
    if (done == 0) MPI_Request_free(&r);
  }
}

}  // namespace
}  // namespace strata::distributed

extern "C" __attribute__((visibility("default"))) std::unique_ptr<strata::distributed::Transport> strata_transport_1(
    const strata::distributed::TransportRequest& request, strata::distributed::AddressBook& book) {
  return std::make_unique<strata::distributed::MpiTransport>(request, book);
}
