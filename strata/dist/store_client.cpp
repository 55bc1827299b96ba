#include <algorithm>
#include <charconv>
#include <random>
#include <thread>

#include <netdb.h>
#include <sys/socket.h>

#include <httplib.h>

#include "strata/dist/coordinator.h"
#include "strata/dist/pipe_signal_inl.h"
#include "strata/dist/values_inl.h"
#include "strata/dist/wire_inl.h"

namespace strata::distributed {
namespace {

using namespace detail;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAnswer{10000};  // what an answer may take beyond what was asked for

// The number of a host; empty where there is none now.
std::string number_of(const std::string& host) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  char text[NI_MAXHOST] = {};
  if (::getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return {};
  if (found != nullptr &&
      ::getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    text[0] = '\0';
  ::freeaddrinfo(found);
  return text;
}

// The secret is another: asking again does not help.
class RefusedError : public DistributedError {
  using DistributedError::DistributedError;
};

std::string at_key(std::string_view key) {
  check_key(key);
  return "/store?key=" + query_text(key);
}

}  // namespace

struct StoreClient::Impl {
  std::string address, host, ip, secret;
  int port = 0;

  // An answer whose status is one of the protocol's; other statuses are errors.
  httplib::Response ask(const char* method, const std::string& path, std::string body, milliseconds patience) const {
    const NoPipeSignal no_signal;
    httplib::ClientImpl client(ip, port);
    client.set_connection_timeout(patience);
    client.set_read_timeout(patience);
    client.set_write_timeout(patience);
    client.set_tcp_nodelay(true);
    httplib::Request request;
    request.method = method;
    request.path = path;
    request.headers = {{"Authorization", "Bearer " + secret}};
    if (request.method == "PUT" || request.method == "POST") {
      request.headers.emplace("Content-Type", kBytes);
      request.body = std::move(body);
    }
    httplib::Result result = client.send(request);
    if (!result)
      throw DistributedError("", cat("the coordinator at ", address, " does not answer (", to_string(result.error()),
                                     "): its process or host is gone, or the network between"));
    httplib::Response response = std::move(result.value());
    switch (response.status) {
      case 200:
      case 204:
      case 404:
      case 503:
        return response;
      case 400:
        throw ValueError("", response.body.substr(0, kLongestFailure));
      case 409:
        throw DistributedError("", response.body.substr(0, kLongestFailure));
      case 401:
      case 403:
        throw RefusedError("", cat("the coordinator at ", address,
                                   " refuses this job's secret: another job has that address, or STRATA_JOB_SECRET "
                                   "differs between ranks"));
      default:
        throw DistributedError("", cat("the coordinator at ", address, " answers with status ", response.status));
    }
  }
};

StoreClient::StoreClient(std::string_view address, std::string_view secret, milliseconds patience)
    : impl_(std::make_unique<Impl>()) {
  impl_->address = address;
  impl_->secret = secret;
  const size_t colon = address.rfind(':');
  const std::string_view port = colon == std::string_view::npos ? "" : address.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), impl_->port);
  check(colon != std::string_view::npos && colon > 0 && error == std::errc() && end == port.data() + port.size() &&
            impl_->port >= 1 && impl_->port <= 65535,
        "store", "the coordinator's address is '", address.substr(0, 300), "', it must read host:port");
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  impl_->host = host;
  const auto deadline = Clock::now() + patience;
  for (milliseconds pause{10};; pause = std::min(2 * pause, milliseconds(500))) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    std::string why = cat("there is no host '", impl_->host, "'");
    // Asked once, not with every heartbeat of every rank.
    impl_->ip = number_of(impl_->host);
    if (!impl_->ip.empty()) {
      try {
        (void)impl_->ask("GET", "/hello", {}, std::clamp(left, milliseconds(1000), milliseconds(5000)));
        return;
      } catch (const RefusedError&) {
        throw;
      } catch (const DistributedError& e) {
        why = e.what();
      }
    }
    if (Clock::now() + pause >= deadline)
      throw DistributedError("", cat(why, "; asked for ", 1e-3 * static_cast<double>(patience.count()), " s"));
    std::this_thread::sleep_for(pause);
  }
}

StoreClient::~StoreClient() = default;

void StoreClient::set(std::string_view key, std::string_view value) {
  check_value(key, value);
  (void)impl_->ask("PUT", at_key(key), std::string(value), kAnswer);
}

std::string StoreClient::get(std::string_view key, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  thread_local std::minstd_rand random{std::random_device{}()};
  for (;;) {
    const auto left = std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(0));
    const std::string path = cat(at_key(key), "&wait=", static_cast<int64_t>(left.count()));
    httplib::Response answer = impl_->ask("GET", path, {}, kAnswer);
    if (answer.status == 200) return std::move(answer.body);
    if (answer.status == 404)
      throw DistributedError("", not_set_text(key, timeout) + answer.body.substr(0, kLongestFailure));
    int pause = 0;
    const std::string text = answer.get_header_value(kWaitHeader);
    (void)std::from_chars(text.data(), text.data() + text.size(), pause);
    if (pause <= 0) continue;
    // Not all at once again.
    const auto spread = milliseconds(pause / 2 + static_cast<int>(random() % static_cast<unsigned>(pause)));
    std::this_thread::sleep_for(std::min(spread, left));
  }
}

int64_t StoreClient::add(std::string_view key, int64_t amount) {
  const httplib::Response answer = impl_->ask("POST", at_key(key), std::to_string(amount), kAnswer);
  int64_t sum = 0;
  const char* const end = answer.body.data() + answer.body.size();
  if (std::from_chars(answer.body.data(), end, sum).ptr != end)
    throw DistributedError("", cat("the coordinator at ", impl_->address, " answers with no sum"));
  return sum;
}

void StoreClient::remove(std::string_view key) {
  (void)impl_->ask("DELETE", at_key(key), {}, kAnswer);
}

std::vector<RankState> StoreClient::beat(const Heartbeat& mine, bool everyone) {
  const std::string path = everyone ? "/beat?everyone=1" : "/beat?everyone=0";
  return states_of(impl_->ask("POST", path, text_of(to_json(mine)), kAnswer).body);
}

Formation StoreClient::form(int rank, int64_t after) {
  return formation_of(impl_->ask("POST", "/form", text_of({{"rank", rank}, {"after", after}}), kAnswer).body);
}

void StoreClient::leave(int rank) {
  (void)impl_->ask("POST", "/leave", text_of({{"rank", rank}}), kAnswer);
}

}  // namespace strata::distributed
