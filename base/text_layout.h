#pragma once

#include <cstddef>
#include <ctime>
#include <string>
#include <string_view>

namespace dtrun {

inline constexpr std::size_t kHelpColumns = 80;

/// "1 host", "2 hosts".
std::string plural(unsigned long long count, std::string_view one);

/// How long something has taken: "0.25 s", "12 s", "4 min 10 s", "3 h 05 min", "2 d 3 h". A limit that somebody has
/// set is told by in_seconds().
std::string duration_text(double seconds);

/// A moment as the clocks here show it. \param form  as strftime() has it, of at most 63 characters once it is filled in
std::string local_time_text(std::time_t moment, const char* form);

/// "512B", "1.5G", "61G". The page of a job (launcher/watch/page.html) writes both in the same way.
std::string bytes_text(double bytes);

/// How wide a terminal is; 0: it is none, or does not tell.
std::size_t terminal_columns(int fd);

/// How many columns of a terminal a text of UTF-8 takes: Chinese, Japanese and Korean characters, and their full-width
/// forms, take two of them.
std::size_t width_in_columns(std::string_view text);

/// The words of `text` in lines of at most `columns` (a longer word stands alone), each after
/// `indent` blanks and before '\n'. Lines end behind characters of two columns, too, which have no blanks between them.
std::string wrap(std::string_view text, std::size_t indent, std::size_t columns = kHelpColumns);

/// Messages in whole lines: one that is wider than `columns` is broken between words, and goes on two columns
/// deeper than it begins. What is quoted ("  | …") stays as it is.
std::string fold_messages(std::string_view whole_lines, std::size_t columns);

/// `left` after two blanks, and `right` in lines that begin after `middle` blanks: beside `left` if
/// two blanks stay free between them, else below it.
std::string two_columns(std::string_view left, std::string_view right, std::size_t middle,
                        std::size_t columns = kHelpColumns);

}  // namespace dtrun
