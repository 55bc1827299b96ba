#pragma once

namespace strata::memory {

/// Timeline::to_html()'s page; {{title}} and {{data}} are filled in.
extern const char* const kTimelinePage;

}  // namespace strata::memory
