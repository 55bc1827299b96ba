#pragma once
// Errors that name the layer they are of: what packs layers and what reads them from files share it.

#include <string_view>

#include "strata/core/error.h"

namespace strata::nn::detail {

/// f(); an error of it is thrown again in the name of `op`, of its own kind (another than these as a ValueError), and
/// names the layer.
template <class F>
auto of_layer(std::string_view op, std::string_view layer, F&& f) {
  const auto text = [&](const Error& e) {
    const std::string_view all = e.what();
    const std::string own = cat(op, ": ");
    return cat("layer \"", layer, "\": ", all.starts_with(own) ? all.substr(own.size()) : all);
  };
  try {
    return f();
  } catch (const ShapeError& e) {
    throw ShapeError(op, text(e));
  } catch (const DTypeError& e) {
    throw DTypeError(op, text(e));
  } catch (const DeviceError& e) {
    throw DeviceError(op, text(e));
  } catch (const IndexError& e) {
    throw IndexError(op, text(e));
  } catch (const Error& e) {
    throw ValueError(op, text(e));
  }
}

}  // namespace strata::nn::detail
