#pragma once
// What cards of one machine are to each other.

#include <vector>

namespace strata::cuda {

/// The way from one card's memory to another's.
struct Link {
  int from = 0, to = 0;
  bool direct = false;    ///< the cards reach each other's memory; otherwise copies go through the host
  double gb_s = 0;        ///< of a large copy
  double latency_us = 0;  ///< of a copy of four bytes, one after the other
};

/// Of each ordered pair of cards that this process sees, one pair after the other: some 10 ms a pair, 128 MiB on each
/// card meanwhile. Empty where there are fewer than two. Throws DeviceError where a card has no room.
std::vector<Link> measure_links();

}  // namespace strata::cuda
