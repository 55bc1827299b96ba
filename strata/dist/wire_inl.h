#pragma once
// What coordinator and clients send each other.
//
//   PUT    /store?key=K            body: the value                     204
//   GET    /store?key=K&wait=MS    200: the value; 404: not set; 503: ask again after header Strata-Wait (ms)
//   POST   /store?key=K            body: an integer to add             200: the sum
//   DELETE /store?key=K                                                204
//   POST   /beat?everyone=0|1      body: a heartbeat as JSON           200: {"size": n, "ranks": [...]}
//   POST   /form                   body: {"rank": r, "after": n}       200: {"number": n, "seats": [...]}; 409: in vain
//   POST   /leave                  body: {"rank": r}                   204
//   GET    /hello                                                      200: the number of ranks
//
// Each carries "Authorization: Bearer SECRET". Errors: 400 with a ValueError's text, 403 a wrong secret, 409 a
// DistributedError's text.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/dist/coordinator.h"

namespace strata::distributed::detail {

constexpr const char* kBytes = "application/octet-stream";
constexpr const char* kWaitHeader = "Strata-Wait";
constexpr size_t kLongestState = 1024, kLongestHost = 256, kLongestFailure = 2048;

/// JSON text; bytes that are no UTF-8 become the replacement character.
std::string text_of(const nlohmann::json& json);
nlohmann::json to_json(const Heartbeat& beat);
/// Throws ValueError naming the field that is missing, of another type or out of bounds.
Heartbeat heartbeat_of(std::string_view text, int size);
/// {"rank": r, "after": n}, and what is answered; errors as above, in an answer DistributedError.
std::pair<int, int64_t> forming_of(std::string_view text, int size);
std::string formation_text(const Formation& formation);
Formation formation_of(std::string_view text);
/// The rank in {"rank": r}; errors as above.
int rank_of(std::string_view text, int size);
/// {"size": n, "ranks": [...]}: those of whom something is known, or, unless `everyone`, those that left or failed.
std::string states_text(const std::vector<RankState>& states, bool everyone);
/// One for each rank. Throws DistributedError where the text is no such thing.
std::vector<RankState> states_of(std::string_view text);
/// `key` as it stands in a query.
std::string query_text(std::string_view key);
/// `text` cut to `most` bytes, control characters as blanks.
std::string one_line(std::string_view text, size_t most);

}  // namespace strata::distributed::detail
