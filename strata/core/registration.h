#pragma once
// Records that are made while the program runs (plugins): they enter the registry together or not at all.

#include <vector>

#include "strata/core/op_base.h"

namespace strata {

/// While one lives, the records that this thread makes are held back; commit() registers them at once, for all
/// threads. The records must live as long as the program once they are registered.
class Registration {
 public:
  Registration();
  ~Registration();
  Registration(const Registration&) = delete;
  /// Throws ValueError, and registers nothing, where a name is taken or comes twice.
  void commit();

 private:
  friend struct Registry;
  std::vector<OpBase*> held_;
};

}  // namespace strata
