#include "bindings/node/src/errors.h"

#include "strata/c/plugin.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/train/trainer.h"

namespace strata::node {

const char* class_of(const Error& e) {
  if (dynamic_cast<const ShapeError*>(&e)) return "ShapeError";
  if (dynamic_cast<const DTypeError*>(&e)) return "DTypeError";
  if (dynamic_cast<const IndexError*>(&e)) return "IndexError";
  if (dynamic_cast<const ValueError*>(&e)) return "ValueError";
  if (dynamic_cast<const DeviceError*>(&e)) return "DeviceError";
  if (dynamic_cast<const AutogradError*>(&e)) return "AutogradError";
  if (dynamic_cast<const MemoryError*>(&e)) return "MemoryError";
  if (dynamic_cast<const IoError*>(&e)) return "IoError";
  if (dynamic_cast<const LinAlgError*>(&e)) return "LinAlgError";
  if (dynamic_cast<const DivergedError*>(&e)) return "DivergedError";
  if (dynamic_cast<const PluginError*>(&e)) return "PluginError";
  if (dynamic_cast<const AbortedError*>(&e)) return "AbortedError";
  return "StrataError";
}

}  // namespace strata::node
