#pragma once

namespace strata {

/// HTML of the report of one run, and of several; "{{name}}" stands where report.cpp puts a value.
extern const char* const kReportPage;
extern const char* const kComparePage;
/// What both share.
extern const char* const kReportStyle;
extern const char* const kReportScript;

}  // namespace strata
