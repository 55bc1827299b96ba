// The order in which ranks begin their messages between cards: where everything of a rank lies in one queue, and a
// message is only done when both of its ends have come to it, all ranks come to their ends.

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/dist/pipeline/schedules.h"
#include "strata/dist/pipeline/table_run_inl.h"

namespace strata::distributed::pipeline {
namespace {

using detail::QueuedMessage;
using Messages = std::vector<QueuedMessage>;
using Key = std::tuple<Pass, int, int>;  // a message, by where it goes

Key key_of(const QueuedMessage& m) {
  return {m.pass, m.stage, m.micro};
}

// What stands in a rank's queue: an action (the number of it), or a message.
struct Item {
  bool is_message = false;
  size_t number = 0;
};
using Queue = std::vector<Item>;

// The other end's stage of an action's message, or -1 where none leaves its rank. Taken: the one that it takes.
int beside(const Table& t, const Action& a, bool taken) {
  if (a.pass == Pass::weight_gradient) return -1;
  const int other = a.stage + ((a.pass == Pass::forward) == taken ? -1 : 1);
  if (other < 0 || other >= t.stages) return -1;
  return t.rank_of[static_cast<size_t>(other)] == t.rank_of[static_cast<size_t>(a.stage)] ? -1 : other;
}
Pass kind_of(const Action& a) {
  return a.pass == Pass::forward ? Pass::forward : Pass::backward;
}

std::vector<Messages> order_of(const Table& t, int buffers) {
  return detail::TableRun(t, {StageCost{}}, 0, buffers).message_order();
}

// Actions and messages as a rank queues them.
Queue queued(const Table& t, int rank, const Messages& messages) {
  Queue queue;
  size_t m = 0;
  for (size_t i = 0; i <= t.actions[static_cast<size_t>(rank)].size(); ++i) {
    for (; m < messages.size() && messages[m].behind <= i; ++m) queue.push_back({true, m});
    if (i < t.actions[static_cast<size_t>(rank)].size()) queue.push_back({false, i});
  }
  return queue;
}

// As a card may take the same from a graph, in which a message waits for the one before and for the actions before it,
// and an action for what it takes.
Queue shuffled(const Table& t, int rank, const Messages& messages, std::mt19937& random) {
  const std::vector<Action>& actions = t.actions[static_cast<size_t>(rank)];
  std::map<Key, size_t> taken;
  for (size_t m = 0; m < messages.size(); ++m)
    if (!messages[m].sends) taken[key_of(messages[m])] = m;
  Queue queue;
  for (size_t i = 0, m = 0; i < actions.size() || m < messages.size();) {
    const bool message = m < messages.size() && messages[m].behind <= i;
    bool action = i < actions.size();
    if (action && beside(t, actions[i], true) >= 0)
      action = taken.at({kind_of(actions[i]), actions[i].stage, actions[i].micro}) < m;
    if (message && (!action || random() % 2 == 0))
      queue.push_back({true, m++});
    else if (action)
      queue.push_back({false, i++});
    else
      break;  // seen by its size
  }
  return queue;
}

// Messages begun ahead, as between hosts: as many of each kind as there are buffers, from the beginning.
std::vector<Messages> begun_ahead(const Table& t, int buffers) {
  std::vector<Messages> all;
  for (int rank = 0; rank < t.ranks; ++rank) {
    const std::vector<Action>& actions = t.actions[static_cast<size_t>(rank)];
    std::map<std::pair<int, Pass>, std::vector<int>> comes;
    for (const Action& a : actions)
      if (beside(t, a, true) >= 0) comes[{a.stage, kind_of(a)}].push_back(a.micro);
    std::map<std::pair<int, Pass>, size_t> asked;
    Messages messages;
    const auto ask = [&](const std::pair<int, Pass>& from, size_t behind) {
      size_t& n = asked[from];
      if (n < comes[from].size()) messages.push_back({false, from.second, from.first, comes[from][n++], behind});
    };
    for (const auto& [from, micros] : comes)
      for (int b = 0; b < buffers; ++b) ask(from, 0);
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      if (beside(t, a, true) >= 0) ask({a.stage, kind_of(a)}, i);
      if (const int to = beside(t, a, false); to >= 0) messages.push_back({true, kind_of(a), to, a.micro, i + 1});
    }
    all.push_back(std::move(messages));
  }
  return all;
}

// One queue a rank, of which only the first item is worked on.
bool ends(const Table& t, const std::vector<Messages>& messages, const std::vector<Queue>& queues) {
  std::vector<size_t> at(queues.size());
  std::set<Key> came;
  std::map<Key, size_t> waits;  // a message to which one end has come: which rank
  bool moved = true;
  while (moved) {
    moved = false;
    for (size_t r = 0; r < queues.size(); ++r) {
      while (at[r] < queues[r].size()) {
        const Item item = queues[r][at[r]];
        if (item.is_message) {
          const Key key = key_of(messages[r][item.number]);
          const auto [other, first] = waits.emplace(key, r);
          if (first || other->second == r) break;
          ++at[other->second];
          came.insert(key);
          waits.erase(other);
        } else {
          const Action& a = t.actions[r][item.number];
          if (beside(t, a, true) >= 0 && !came.contains({kind_of(a), a.stage, a.micro})) break;
        }
        ++at[r];
        moved = true;
      }
    }
  }
  for (size_t r = 0; r < queues.size(); ++r)
    if (at[r] < queues[r].size()) return false;
  return true;
}

bool ends_in_order(const Table& t, const std::vector<Messages>& messages) {
  std::vector<Queue> queues;
  for (int r = 0; r < t.ranks; ++r) queues.push_back(queued(t, r, messages[static_cast<size_t>(r)]));
  return ends(t, messages, queues);
}

// All schedules for 2 to 8 ranks, 1 to 16 micro-batches, 1 to 3 stages a rank; and with one more buffer.
template <class F>
void for_all(const F& f) {
  for (const ScheduleRecord& record : schedule_records()) {
    const int most = record.most_stages == 0 ? 3 : record.most_stages;
    for (int ranks = 2; ranks <= 8; ++ranks)
      for (int chunks = record.least_stages; chunks <= most; ++chunks)
        for (int m = 1; m <= 16; ++m) {
          const Table table = make_table(record.name, ranks, m, chunks);
          const int least = prove(table).buffers;
          for (const int buffers : {least, std::max(least, 2) + 1}) {
            SCOPED_TRACE(testing::Message() << record.name << ", " << ranks << " ranks, " << chunks << " stages each, "
                                            << m << " micro-batches, " << buffers << " buffers");
            f(table, buffers);
          }
        }
  }
}

TEST(MessageOrder, OneQueueARankEnds) {
  std::map<std::string, int> still;  // tables whose messages, begun ahead, wait for ever
  for_all([&](const Table& t, int buffers) {
    EXPECT_TRUE(ends_in_order(t, order_of(t, buffers)));
    still[t.schedule] += ends_in_order(t, begun_ahead(t, buffers)) ? 0 : 1;
  });
  for (const ScheduleRecord& record : schedule_records()) EXPECT_GT(still[std::string(record.name)], 0) << record.name;
}

TEST(MessageOrder, AnyOrderThatAGraphAllowsEnds) {
  std::mt19937 random(3);
  for_all([&](const Table& t, int buffers) {
    const std::vector<Messages> messages = order_of(t, buffers);
    for (int draw = 0; draw < 3; ++draw) {
      std::vector<Queue> queues;
      for (size_t r = 0; r < messages.size(); ++r) {
        queues.push_back(shuffled(t, static_cast<int>(r), messages[r], random));
        ASSERT_EQ(queues.back().size(), messages[r].size() + t.actions[r].size());
      }
      ASSERT_TRUE(ends(t, messages, queues));
    }
  });
}

// Each message stands at both ends, behind its maker alone, before its taker, and no more wait than there are buffers.
TEST(MessageOrder, HasEachMessageInItsPlaceAndBoundsTheBuffers) {
  for_all([&](const Table& t, int buffers) {
    const std::vector<Messages> all = order_of(t, buffers);
    size_t sent = 0, received = 0;
    for (size_t r = 0; r < all.size(); ++r) {
      const std::vector<Action>& actions = t.actions[r];
      std::map<std::pair<Pass, int>, int> waiting;
      size_t m = 0;
      std::set<Key> here;
      const auto begin = [&](size_t behind) {
        for (; m < all[r].size() && all[r][m].behind <= behind; ++m) {
          const QueuedMessage& q = all[r][m];
          if (q.sends) {
            ASSERT_GT(behind, 0u);
            const Action& maker = actions[behind - 1];
            EXPECT_EQ(key_of(q), Key(kind_of(maker), beside(t, maker, false), maker.micro));
            ++sent;
          } else {
            EXPECT_TRUE(here.insert(key_of(q)).second);
            EXPECT_LE((++waiting[{q.pass, q.stage}]), buffers);
            ++received;
          }
        }
      };
      for (size_t i = 0; i < actions.size(); ++i) {
        begin(i);
        if (beside(t, actions[i], true) < 0) continue;
        EXPECT_TRUE(here.contains({kind_of(actions[i]), actions[i].stage, actions[i].micro}));
        --waiting[{kind_of(actions[i]), actions[i].stage}];
      }
      begin(actions.size());
      EXPECT_EQ(m, all[r].size());
    }
    size_t makers = 0;
    for (const auto& actions : t.actions)
      for (const Action& a : actions) makers += beside(t, a, false) >= 0 ? 1 : 0;
    EXPECT_EQ(sent, makers);
    EXPECT_EQ(received, makers);
  });
}

// Both ranks have made something for the other at the same time: the lower one's goes first, at both.
TEST(MessageOrder, OfTwoThatCrossOneIsFirstAtBothEnds) {
  const Table t = make_table("1f1b", 2, 4);
  const std::vector<Messages> all = order_of(t, 2);
  std::vector<std::vector<Key>> keys;
  for (const Messages& messages : all) {
    keys.emplace_back();
    for (const QueuedMessage& m : messages) keys.back().push_back(key_of(m));
  }
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_EQ(keys[0].size(), 8u);
}

TEST(MessageOrder, RefusesTooFewBuffers) {
  const Table t = make_table("breadth-first", 2, 8, 2);
  const int least = prove(t).buffers;
  ASSERT_GT(least, 1);
  EXPECT_THROW(order_of(t, least - 1), ValueError);
}

}  // namespace
}  // namespace strata::distributed::pipeline
