#pragma once

#include <fmt/format.h>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::lab {

/// In which language a report is: --lang.
enum class Language : std::uint8_t { english, chinese };

/// The texts of reports in one language, a member for each row of words.def.
struct ReportWords {
#define WORD(name, english, chinese) std::string_view name;
#include "lab/report/words.def"
#undef WORD
};

const ReportWords& words_of(Language language);

/// A text with its places filled.
template <class... Values>
std::string filled(std::string_view text, const Values&... values) {
    return fmt::format(fmt::runtime(text), values...);
}

}  // namespace dtrun::lab
