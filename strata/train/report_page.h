#pragma once

namespace strata {

/// The report's HTML, style and script; "{{name}}" stands where report.cpp puts a value.
extern const char* const kReportPage;

}  // namespace strata
