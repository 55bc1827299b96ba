#pragma once

namespace strata {

/// HTML of a report; "{{name}}" stands where report.cpp puts a value.
extern const char* const kReportPage;
/// Its body for one run, and for several.
extern const char* const kRunBody;
extern const char* const kCompareBody;
extern const char* const kReportStyle;
extern const char* const kReportScript;

}  // namespace strata
