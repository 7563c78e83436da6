#pragma once

#include "base/result.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::mpi {

/// One request or reply of PMI: what is to be done, and values by their keys.
struct PmiCommand {
    using Values = std::vector<std::pair<std::string, std::string>>;

    std::string name;
    Values values;

    /// The first with that key; nullptr: none.
    const std::string* find(std::string_view key) const;
    /// The same, empty where there is none.
    std::string_view value(std::string_view key) const;

    bool operator==(const PmiCommand&) const = default;
};

/// A line of PMI-1, "cmd=NAME KEY=VALUE…\n". It has no way to write a blank or a line end in a value:
/// see is_pmi1_word().
std::string encode_pmi1(const PmiCommand& command);
/// A message of PMI-2: its length in six characters, then "cmd=NAME;KEY=VALUE;…", a ';' in a value
/// written twice.
std::string encode_pmi2(const PmiCommand& command);

/// Whether `text` can be a value in PMI-1.
bool is_pmi1_word(std::string_view text);

/// Which of the two is spoken; a client begins with PMI-1 in any case.
enum class PmiVersion : unsigned char { one = 1, two = 2 };

/// Finds commands in a stream of bytes, however it is cut.
class PmiReader {
public:
    /// Limit of a line of PMI-1. MPICH's lines have 1 KiB.
    static constexpr std::size_t kLineBytesMax = 64u << 10;
    /// Limit of a message of PMI-2 without its length, which has six digits.
    static constexpr std::size_t kMessageBytesMax = 999'999;

    /// Sets the version of the commands that follow.
    void set_version(PmiVersion version) { version_ = version; }

    void feed(std::string_view bytes);
    std::size_t held() const { return in_.size() - begin_; }

    /// The next command that is there as a whole. Of one in several lines ("mcmd=spawn") only the
    /// values that say how many of them belong together. Errc: invalid_input; then it is over
    Result<std::optional<PmiCommand>> next();

private:
    Result<std::optional<PmiCommand>> next_line();
    Result<std::optional<PmiCommand>> take_line(std::string_view line);
    Result<std::optional<PmiCommand>> next_message();

    PmiVersion version_ = PmiVersion::one;
    std::string in_;
    std::size_t begin_ = 0;               ///< of what is not used in in_
    std::size_t looked_ = 0;              ///< from begin_ on, without a line end
    std::optional<PmiCommand> in_lines_;  ///< whose end has not come
};

}  // namespace dtrun::mpi
