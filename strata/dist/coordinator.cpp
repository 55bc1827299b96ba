#include "strata/dist/coordinator.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "strata/core/base64_inl.h"
#include "strata/dist/http_server_inl.h"
#include "strata/dist/pages_inl.h"
#include "strata/dist/stragglers_inl.h"
#include "strata/dist/values_inl.h"
#include "strata/dist/wire_inl.h"

namespace strata::distributed {
namespace {

using namespace detail;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kOp = "coordinator";
constexpr int kMostWaiting = 64;   // requests that wait for a key
constexpr int kOtherThreads = 32;  // for all the others
constexpr milliseconds kLongestWait{5000}, kTick{250};
constexpr milliseconds kShared{100};  // how old an answer about all ranks may be that the ranks of a large job get
constexpr size_t kLarge = 64;

// Takes as long whatever the first difference is.
bool same(std::string_view secret, std::string_view given) {
  unsigned different = secret.size() != given.size();
  for (size_t i = 0; i < given.size(); ++i)
    different |= static_cast<unsigned char>(secret[i % secret.size()] ^ given[i]);
  return different == 0;
}

bool from_this_host(const httplib::Request& request) {
  const std::string& ip = request.remote_addr;
  if (!ip.starts_with("127.") && ip != "::1" && !ip.starts_with("::ffff:127.")) return false;
  // A page of the web whose name was made to lead here asks under that name.
  std::string host = request.get_header_value("Host");
  if (const size_t colon = host.rfind(':'); colon != std::string::npos && host.find(']', colon) == std::string::npos)
    host.resize(colon);
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

int64_t integer_in(const std::string& text, const char* what) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), kOp, what, " is no integer");
  return value;
}

// The ranks' states, and who has failed.
class Ranks {
 public:
  Ranks(int size, milliseconds silence, milliseconds window)
      : silence_(silence), window_(window), ranks_(static_cast<size_t>(size)) {
    for (int r = 0; r < size; ++r) {
      ranks_[static_cast<size_t>(r)].state.last.rank = r;
      formed_.seats.push_back(r);
    }
  }
  int size() const { return static_cast<int>(ranks_.size()); }

  void started(int rank, std::string_view host, int64_t pid) {
    const std::lock_guard lock(mutex_);
    // Of one that takes a dead one's place its own heartbeat tells.
    if (!at(rank).state.failure.empty()) return;
    Heartbeat& last = at(rank).state.last;
    last.host = one_line(host, kLongestHost);
    last.pid = pid;
  }

  void beat(const Heartbeat& mine) {
    const std::lock_guard lock(mutex_);
    Rank& r = at(mine.rank);
    const Heartbeat& last = r.state.last;
    const bool other = r.heard && (last.pid != mine.pid || last.host != mine.host);
    const bool over = r.state.left || !r.state.failure.empty();
    if (other && !over)
      throw DistributedError("", cat("rank ", mine.rank, " is process ", last.pid, " on ", last.host, "; process ",
                                     mine.pid, " on ", mine.host, " cannot be the same rank"));
    if (other) {
      r.state = {};
      r.waits = {};
      changed_ = true;
    }
    r.state.last = mine;
    r.heard = true;
    r.when = Clock::now();
    r.waits.add(r.when, mine.waited, mine.step, window_);
  }

  void fail(int rank, std::string_view why) {
    const std::lock_guard lock(mutex_);
    RankState& s = at(rank).state;
    if (!s.left && s.failure.empty()) mark(s, one_line(why, kLongestFailure));
    at(rank).came = false;
  }
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    RankState& s = at(rank).state;
    if (s.failure.empty()) s.left = true;
  }

  void lose(int rank) {
    const std::lock_guard lock(mutex_);
    at(rank).lost = true;
    changed_ = true;
  }
  Formation formation() const {
    const std::lock_guard lock(mutex_);
    return formed_;
  }
  Formation form(int rank, int64_t after) {
    const std::lock_guard lock(mutex_);
    Rank& mine = at(rank);
    if (mine.lost) throw DistributedError("", cat("rank ", rank, " was given up: the job goes on without it"));
    if (formed_.number > after) return formed_;
    mine.came = true;
    std::vector<int> seats;
    for (const Rank& r : ranks_) {
      const int number = r.state.last.rank;
      if (r.state.left) throw DistributedError("", cat("rank ", number, " has ended: the job cannot be formed anew"));
      if (r.lost) continue;
      if (!r.came || !r.state.failure.empty()) return {after, {}};
      seats.push_back(number);
    }
    if (!changed_) throw DistributedError("", "no rank has died since the job was formed: it would fail again");
    changed_ = false;
    formed_ = {formed_.number + 1, std::move(seats)};
    for (Rank& r : ranks_) r.came = false;
    return formed_;
  }

  // Names those that are silent for too long. `missed`: how much later than planned this comes. Where this process
  // itself was stopped, nobody could be heard.
  void look(Clock::duration missed) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (Rank& r : ranks_) {
      if (!r.heard || r.state.left || !r.state.failure.empty()) continue;
      r.when = std::min(r.when + missed, now);
      const auto age = now - r.when;
      if (age <= silence_) continue;
      const auto whole = std::chrono::round<std::chrono::seconds>(age).count();
      r.came = false;
      mark(r.state, cat("no heartbeat for ", whole > 0 ? whole : 1, " s (stopped, or its host is gone)"));
    }
  }

  std::vector<RankState> states() const {
    const std::lock_guard lock(mutex_);
    std::vector<RankState> all;
    const auto now = Clock::now();
    for (const Rank& r : ranks_) {
      all.push_back(r.state);
      all.back().age = r.heard ? std::chrono::duration<double>(now - r.when).count() : -1;
      all.back().share = r.waits.share(window_);
    }
    name_straggler(all);
    return all;
  }

  // states() as text, made once for those who ask at the same time.
  std::string text(bool everyone) {
    const std::lock_guard lock(text_mutex_);
    Shared& shared = text_[everyone];
    const auto now = Clock::now();
    if (shared.text.empty() || ranks_.size() <= kLarge || now - shared.made > kShared)
      shared = {states_text(states(), everyone), now};
    return shared.text;
  }

  // Who has failed, for those who wait in vain.
  std::string failures() const {
    std::string text;
    for (const RankState& s : states())
      if (!s.failure.empty() && text.size() < kLongestFailure)
        text += cat("; rank ", s.last.rank,
                    s.last.host.empty() ? "" : cat(" (", s.last.host, ", pid ", s.last.pid, ")"), ": ", s.failure);
    return text;
  }

 private:
  struct Rank {
    RankState state;
    bool heard = false, came = false, lost = false;  // came: to the next forming
    Clock::time_point when;
    Waits waits;
  };
  struct Shared {
    std::string text;
    Clock::time_point made;
  };
  Rank& at(int rank) {
    check<IndexError>(rank >= 0 && rank < size(), kOp, "there is no rank ", rank, " of ", size());
    return ranks_[static_cast<size_t>(rank)];
  }

  void mark(RankState& state, std::string why) {
    state.failure = std::move(why);
    state.order = ++failed_;
  }

  const milliseconds silence_, window_;
  int failed_ = 0;
  mutable std::mutex mutex_, text_mutex_;
  std::vector<Rank> ranks_;
  Formation formed_;
  bool changed_ = false;  // processes, since then
  Shared text_[2];
};

// Looks at the ranks' ages until it is destroyed.
class Watch {
 public:
  explicit Watch(Ranks& ranks)
      : thread_([this, &ranks] {
          std::unique_lock lock(mutex_);
          for (auto planned = Clock::now() + kTick; !ended_.wait_until(lock, planned, [&] { return over_; });) {
            const auto now = Clock::now();
            ranks.look(now - planned > kTick ? now - planned : Clock::duration(0));
            planned = now + kTick;
          }
        }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace

struct Coordinator::Impl {
  explicit Impl(const CoordinatorOptions& options)
      : secret(options.secret),
        values(std::make_shared<Values>()),
        store(make_store(values)),
        ranks(options.size, options.silence, options.window) {}
  ~Impl() {
    values->close();
    server.close();
  }

  const std::string secret;
  const std::shared_ptr<Values> values;
  const std::unique_ptr<Store> store;
  Ranks ranks;
  std::atomic<int> waiting{0};
  int port = 0;
  HttpServer server;
  std::optional<Watch> watch;

  bool knows_secret(const httplib::Request& request) const {
    const std::string given = request.get_header_value("Authorization");
    if (given.starts_with("Bearer ")) return same(secret, std::string_view(given).substr(7));
    // Browsers ask for a name and a password; the name is nothing to us.
    if (!given.starts_with("Basic ") || given.size() > 1024) return false;
    const std::optional<std::string> named = strata::detail::from_base64(std::string_view(given).substr(6));
    const size_t colon = named ? named->find(':') : std::string::npos;
    return colon != std::string::npos && same(secret, std::string_view(*named).substr(colon + 1));
  }

  // Before the body is read.
  bool refused(const httplib::Request& request, httplib::Response& response) const {
    const bool page = request.path == "/status" || request.path == "/metrics";
    if (!knows_secret(request) && !(page && request.method == "GET" && from_this_host(request))) {
      response.status = page ? 401 : 403;
      if (page) response.set_header("WWW-Authenticate", "Basic realm=\"Strata\"");
      response.set_content("this job's secret is missing or wrong\n", "text/plain");
      return true;
    }
    // Of what the parser knows, the parts whose size it does not bound.
    const bool brings = request.method != "GET" && request.method != "DELETE";
    if (request.has_header("Content-Encoding") || request.has_header("Transfer-Encoding") ||
        request.has_header("Range") || (brings && request.get_header_value("Content-Type") != kBytes)) {
      response.status = 400;
      response.set_content("not a request of this protocol\n", "text/plain");
      return true;
    }
    return false;
  }

  void get(const httplib::Request& request, httplib::Response& response) {
    const std::string key = request.get_param_value("key");
    const int64_t wait = integer_in(request.get_param_value("wait"), "wait");
    const bool busy = ++waiting > kMostWaiting;
    const auto longest = busy ? milliseconds(0) : kLongestWait;
    std::optional<std::string> value;
    try {
      value = values->get(key, Clock::now() + std::clamp(milliseconds(wait), milliseconds(0), longest));
    } catch (...) {
      --waiting;
      throw;
    }
    --waiting;
    if (value) {
      response.set_content(*value, kBytes);
    } else if (wait > longest.count()) {
      // All ranks together ask at most some 4,000 times a second.
      response.status = 503;
      response.set_header(kWaitHeader, std::to_string(busy ? std::clamp(ranks.size() / 4, 20, 1000) : 0));
    } else {
      response.status = 404;
      response.set_content(ranks.failures(), "text/plain");
    }
  }

  void set_up();
};

void Coordinator::Impl::set_up() {
  using httplib::Request;
  using httplib::Response;
  server.set_payload_max_length(kLargestValue);
  server.set_pre_routing_handler([this](const Request& request, Response& response) {
    return refused(request, response) ? httplib::Server::HandlerResponse::Handled
                                      : httplib::Server::HandlerResponse::Unhandled;
  });
  // Errors become answers; what nobody expects ends the request alone.
  const auto answered = [](auto&& work) {
    return [work](const Request& request, Response& response) {
      response.status = 200;
      try {
        work(request, response);
      } catch (const DistributedError& e) {
        response.status = 409;
        response.set_content(e.what(), "text/plain");
      } catch (const Error& e) {
        response.status = 400;
        response.set_content(e.what(), "text/plain");
      }
    };
  };
  server.Get("/hello", answered([this](const Request&, Response& response) {
               response.set_content(std::to_string(ranks.size()), kBytes);
             }));
  server.Get("/store", answered([this](const Request& request, Response& response) { get(request, response); }));
  server.Put("/store", answered([this](const Request& request, Response& response) {
               values->set(request.get_param_value("key"), request.body);
               response.status = 204;
             }));
  server.Post("/store", answered([this](const Request& request, Response& response) {
                const int64_t amount = integer_in(request.body, "the amount");
                response.set_content(std::to_string(values->add(request.get_param_value("key"), amount)), kBytes);
              }));
  server.Delete("/store", answered([this](const Request& request, Response& response) {
                  values->remove(request.get_param_value("key"));
                  response.status = 204;
                }));
  server.Post("/beat", answered([this](const Request& request, Response& response) {
                ranks.beat(heartbeat_of(request.body, ranks.size()));
                response.set_content(ranks.text(request.get_param_value("everyone") != "0"), "application/json");
              }));
  server.Post("/form", answered([this](const Request& request, Response& response) {
                const auto [rank, after] = forming_of(request.body, ranks.size());
                response.set_content(formation_text(ranks.form(rank, after)), "application/json");
              }));
  server.Post("/leave", answered([this](const Request& request, Response& response) {
                ranks.leave(rank_of(request.body, ranks.size()));
                response.status = 204;
              }));
  server.Get("/status", answered([this](const Request&, Response& response) {
               response.set_content(status_page(ranks.states()), "text/html; charset=utf-8");
             }));
  server.Get("/metrics", answered([this](const Request&, Response& response) {
               response.set_content(metrics_page(ranks.states()), "text/plain; version=0.0.4");
             }));
}

Coordinator::Coordinator(const CoordinatorOptions& options) {
  check(options.size >= 1 && options.size <= 1 << 20, kOp, "a job has 1 to 1048576 ranks, not ", options.size);
  check(options.port >= 0 && options.port <= 65535, kOp, "there is no port ", options.port);
  check(!options.secret.empty() && options.secret.size() <= 256 &&
            std::ranges::all_of(options.secret, [](char c) { return c > ' ' && c <= '~'; }),
        kOp, "the secret has 1 to 256 bytes of printable ASCII without blanks");
  impl_ = std::make_unique<Impl>(options);
  impl_->set_up();
  impl_->port = impl_->server.start(options.host, options.port, std::min(options.size, kMostWaiting) + kOtherThreads);
  if (impl_->port < 0) {
    const char* why = errno != 0 ? std::strerror(errno) : "no such host";
    throw DistributedError(kOp, cat("cannot listen at ", options.host,
                                    options.port > 0 ? cat(", port ", options.port) : std::string(), ": ", why));
  }
  impl_->watch.emplace(impl_->ranks);
}

Coordinator::~Coordinator() = default;

int Coordinator::port() const {
  return impl_->port;
}

void Coordinator::started(int rank, std::string_view host, int64_t pid) {
  impl_->ranks.started(rank, host, pid);
}

std::vector<RankState> Coordinator::ranks() const {
  return impl_->ranks.states();
}

void Coordinator::fail(int rank, std::string_view why) {
  impl_->ranks.fail(rank, why);
}

void Coordinator::leave(int rank) {
  impl_->ranks.leave(rank);
}

void Coordinator::lose(int rank) {
  impl_->ranks.lose(rank);
}

Formation Coordinator::formation() const {
  return impl_->ranks.formation();
}

Store& Coordinator::store() {
  return *impl_->store;
}

}  // namespace strata::distributed
