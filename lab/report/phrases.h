#pragma once

#include "lab/report/results.h"

#include <string>
#include <string_view>

namespace dtrun::lab {

/// What a run has said in English, in another language: each line by its PHRASE of phrases.def. Lines that have none, which
/// programs and libraries have printed, stay as they are, as do those that are quoted.
std::string told_in(Language language, std::string_view text);
/// The same of a word or two that are no line of anybody's output, by FACT first.
std::string fact_in(Language language, std::string_view text);

/// A report with what backends, hosts and runs have said in its language. What readers see is made of this; its file and
/// its CSV keep what was said.
LabReport told_in_its_language(LabReport report);

/// The name of a backend in tables: "none" and "own" are no names but words.
std::string backend_name_in(const ReportWords& words, std::string_view backend);

}  // namespace dtrun::lab
