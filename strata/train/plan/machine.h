#pragma once
// What a job's ranks compute and send, for forecasts: as measured (measure_machine()), or as said in a file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/device.h"
#include "strata/lab/limits.h"

namespace strata::plan {

/// The way from one rank's memory to another's.
struct Link {
  double gb_s = 0;        ///< 1e9 bytes a second of a large message; 0: not known
  double latency_us = 0;  ///< of a message of a few bytes
  bool operator==(const Link&) const = default;
};

/// How the ranks of a job are joined: alike within and between hosts, or each pair as it is.
struct Links {
  /// "gloo" or "mpi": each rank exchanges with every other one at once. "nccl": rings, whose slowest edge says how fast.
  std::string transport = "nccl";
  int ranks_per_host = 8;  ///< neighbours in the order of the ranks
  Link inside, between;    ///< of two ranks of one host, and of two
  /// Of rank `from` to rank `to` at [from * ranks + to]; empty where inside and between say it. Its size is a square.
  std::vector<Link> pairs;
  /// The part of a collective's time in which the rank computes as fast as without it.
  double overlap = 1;
  /// Seconds of a collective of all ranks over what the links allow it, of many bytes and of few.
  double scale = 1, small_scale = 1;

  /// Ranks that `pairs` is of; 0 for any number.
  int ranks() const;
  /// Of two ranks, other than each other.
  Link of(int from, int to) const;
  bool operator==(const Links&) const = default;
};

/// What one rank has and does while the others do the same.
struct Machine {
  std::string name;  ///< of its processors and links, for people
  lab::Limits limits;
  double efficiency = 1;  ///< what steps reach of the limits
  double call_us = 0;     ///< that a call of a step takes besides
  /// What other programs leave: of the speed that ranks compute with when nothing else runs, the part that they had. A
  /// file may say 1, for forecasts of the machine by itself.
  double share = 1;
  int64_t memory = 0;     ///< bytes that a rank may take; 0: not known
  Links links;

  /// As JSON, which machine_from_json() reads.
  std::string to_json() const;
};

/// Throws IoError naming `source` and the byte or key for a text that is none, and for numbers that make no sense (a rate
/// that is not positive, pairs of no square number).
Machine machine_from_json(std::string_view text, std::string_view source);
/// Ranks on cards that were measured elsewhere (lab::known_cards()), eight a host: in a host the 355 GB/s of an all_reduce of
/// four; between hosts 50 GB/s for each card, a data sheet's figure. Throws ValueError listing the names.
Machine machine_of_card(std::string_view name);

/// Measures limits, what small steps reach of them in `dtype` (a key of train.dtype), on a processor what other programs
/// leave of that, links of each pair and collectives,
/// all ranks of the job at once; alone without links. Every rank of the job calls it and gets the same. Takes 1 to 3
/// seconds and 64 MiB of `device` in each rank. Throws as collectives do, and DeviceError for a card that is not there.
Machine measure_machine(Device device, std::string_view dtype = "f32");

}  // namespace strata::plan
