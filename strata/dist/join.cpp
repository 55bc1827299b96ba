#include "strata/dist/coordinator.h"
#include "strata/dist/job.h"
#include "strata/dist/meeting_inl.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace strata::distributed {
namespace {

using detail::Address;
using detail::MeetingFile;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw DistributedError("", cat("the file '", path, "' through which the ranks of this host meet ", what));
}

constexpr milliseconds kFarewell{10000};

// Closes at the end of a block.
struct File {
  int fd;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

std::unique_ptr<Coordinator> start_at(const Job& job) {
  const size_t colon = job.coordinator.rfind(':');
  std::string host = job.coordinator.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  CoordinatorOptions options{.size = job.size, .host = detail::interface_for(host), .secret = job.secret};
  const std::string port = job.coordinator.substr(colon + 1);
  (void)std::from_chars(port.data(), port.data() + port.size(), options.port);
  return std::make_unique<Coordinator>(options);
}

// The file may be another job's that was killed, until rank 0 has replaced it.
std::unique_ptr<StoreClient> find_by_file(const Job& job, milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  std::string why = "rank 0 has not written it";
  for (milliseconds pause{10};; pause = std::min(2 * pause, milliseconds(200))) {
    const Address at = MeetingFile::read(job.meeting);
    if (!at.coordinator.empty()) {
      try {
        return std::make_unique<StoreClient>(at.coordinator, at.secret, milliseconds(0));
      } catch (const DistributedError& e) {
        why = e.what();
      }
    }
    if (Clock::now() + pause >= deadline)
      throw DistributedError(
          "", cat("rank ", job.rank, " of ", job.size, " found no coordinator through the file '", job.meeting,
                  "' within ", 1e-3 * static_cast<double>(patience.count()), " s: ", why));
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

namespace detail {

std::string interface_for(const std::string& host) {
  unsigned char bytes[16];
  const bool number = ::inet_pton(AF_INET, host.c_str(), bytes) == 1 || ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
  return number ? host : "0.0.0.0";
}

std::string random_secret() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
    throw DistributedError("", cat("the system gives no random numbers: ", std::strerror(errno)));
  std::string text;
  for (const unsigned char b : bytes)
    for (const int digit : {b >> 4, b & 15}) text += "0123456789abcdef"[digit];
  return text;
}

MeetingFile::MeetingFile(std::string path, const Address& address) : path_(std::move(path)) {
  const std::string text = cat(address.coordinator, "\n", address.secret, "\n");
  const std::string temporary = cat(path_, ".", static_cast<int64_t>(::getpid()));
  ::unlink(temporary.c_str());  // of a process that was killed and had this number
  const File file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
  struct stat status {};
  const bool good = file.fd >= 0 && ::fchmod(file.fd, 0600) == 0 &&
                    ::write(file.fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                    ::fstat(file.fd, &status) == 0 && ::rename(temporary.c_str(), path_.c_str()) == 0;
  if (!good) {
    const int error = errno;
    if (file.fd >= 0) ::unlink(temporary.c_str());
    fail(path_, cat("cannot be written: ", std::strerror(error)));
  }
  file_ = status.st_ino;
}

MeetingFile::~MeetingFile() {
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0 && status.st_ino == file_) ::unlink(path_.c_str());
}

Address MeetingFile::read(const std::string& path) {
  const File file{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0 && errno == ENOENT) return {};
  if (file.fd < 0) fail(path, cat("cannot be read: ", std::strerror(errno)));
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) fail(path, cat("cannot be read: ", std::strerror(errno)));
  if (status.st_uid != ::geteuid()) fail(path, cat("belongs to user ", status.st_uid, ", not to this one"));
  if (!S_ISREG(status.st_mode) || (status.st_mode & 077) != 0) fail(path, "is open to others, or no plain file");
  char text[1024];
  const ssize_t n = ::read(file.fd, text, sizeof text);
  const std::string_view all(text, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  const size_t first = all.find('\n'), second = first == std::string_view::npos ? first : all.find('\n', first + 1);
  if (second == std::string_view::npos || second + 1 != all.size()) fail(path, "holds something else");
  return {std::string(all.substr(0, first)), std::string(all.substr(first + 1, second - first - 1))};
}

}  // namespace detail

Membership::Membership() : exceptions_(std::uncaught_exceptions()) {}
Membership::Membership(Membership&&) noexcept = default;

Membership::~Membership() {
  const bool in_order = std::uncaught_exceptions() <= exceptions_;
  if (in_order && client) {
    try {
      client->leave(rank_);
    } catch (const Error&) {
      // Whoever could hear it is gone.
    }
  }
  if (!hosted) return;
  if (!in_order) hosted->fail(rank_, "ended by an error of its own");
  const auto gone = [&] {
    const std::vector<RankState> ranks = hosted->ranks();
    return std::ranges::all_of(
        ranks, [&](const RankState& r) { return r.last.rank == rank_ || r.left || !r.failure.empty(); });
  };
  for (const auto end = Clock::now() + kFarewell; !gone() && Clock::now() < end;)
    std::this_thread::sleep_for(milliseconds(10));
}

Membership join(const Job& job, milliseconds patience) {
  Membership member;
  member.rank_ = job.rank;
  if (job.size == 1) return member;
  if (job.meeting.empty()) {
    if (job.rank == 0 && !job.coordinator_runs) member.hosted = start_at(job);
    member.client = std::make_unique<StoreClient>(job.coordinator, job.secret, patience);
  } else if (job.rank == 0) {
    const std::string secret = job.secret.empty() ? detail::random_secret() : job.secret;
    member.hosted = std::make_unique<Coordinator>(CoordinatorOptions{.size = job.size, .secret = secret});
    const Address at{cat("127.0.0.1:", member.hosted->port()), secret};
    member.file_ = std::make_unique<MeetingFile>(job.meeting, at);
    member.client = std::make_unique<StoreClient>(at.coordinator, at.secret, patience);
  } else {
    member.client = find_by_file(job, patience);
  }
  return member;
}

}  // namespace strata::distributed
