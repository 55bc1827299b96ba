#pragma once
// What jobs of several processes need of a card.

#include <cstdint>
#include <functional>
#include <string>

#include "strata/cuda/runtime.h"

namespace strata::cuda {

/// Calls fn with the card current on this thread. Unlike an op it does not look at what failed there.
void on_card(int device, const std::function<void()>& fn);
/// A stream whose kernels get a multiprocessor before those of Stream::create()'s where both wait for one, in graphs
/// too.
Stream urgent_stream(int device);
/// 32 hexadecimal digits that no other card has, whatever number a process knows it by.
std::string card_uuid(int device);

/// Two counters that the card increases and the host reads without waiting for it. They live as long as the program:
/// graphs that count may outlive everything else.
struct Marks {
  uint64_t* counts = nullptr;               // on the card
  const volatile uint64_t* seen = nullptr;  // the same in the host's memory
};
enum Mark : int { kBegun = 0, kEnded = 1 };
Marks make_marks(int device);
/// Queues: the counter is one more.
void add_mark(const Marks& marks, Mark which, const Stream& stream);
uint64_t read_mark(const Marks& marks, Mark which);

/// From now on whoever begins an op on the card, replays a graph there, or has waited for it calls `raise`, which
/// throws: what the card computed depends on a collective that was ended. nullptr ends that. One function at a time.
void fail_card(int device, void (*raise)());

}  // namespace strata::cuda
