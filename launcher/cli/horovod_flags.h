#pragma once

#include "base/result.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::cli {

/// One tuning setting of Horovod: how the user spells it, and the variable that carries it to the
/// ranks. Names and meanings are those of horovodrun 0.28.
struct HorovodSetting {
    /// What the user writes, and what becomes of it.
    enum class Form {
        whole,      ///< 0..INT_MAX
        megabytes,  ///< 0..2^43-1, times 1048576
        decimal,    ///< >= 0; "20" becomes "20.0"
        fraction,   ///< 0..1
        text,       ///< not empty
        level,      ///< TRACE, DEBUG, INFO, WARNING, ERROR or FATAL, in any case
        yes_no,     ///< "1" or "0"
    };

    std::string_view variable{};  ///< e.g. "HOROVOD_CYCLE_TIME"; identifies the setting
    Form form{};
    std::string_view flags{};     ///< names between blanks; with yes_no those that mean "1"
    std::string_view flags_no{};  ///< with yes_no: those that mean "0"
    std::string_view key{};       ///< "section.name" in --config-file
    std::string_view key_no{};    ///< with yes_no: a key with the opposite meaning
    std::string_view needs{};     ///< variable that must be on for this one to be passed on
    std::string_view help{};
};

std::span<const HorovodSetting> horovod_settings();

/// The variable of `controller:` in --config-file, "gloo" or "mpi"; the operations on CPUs follow it.
inline constexpr std::string_view kHorovodController = "HOROVOD_CONTROLLER";
inline constexpr std::string_view kHorovodCpuOperations = "HOROVOD_CPU_OPERATIONS";

/// Variable to value.
using HorovodValues = std::map<std::string, std::string, std::less<>>;

/// What the variable gets for what the user wrote ("true" and "false" with yes_no).
/// \return invalid_input "'x' is not ...", without the name of the flag
Result<std::string> horovod_value(const HorovodSetting& setting, std::string_view text);

struct HorovodEnvironment {
    std::vector<std::pair<std::string, std::string>> variables;
    std::vector<std::string> warnings;  ///< settings that have no effect without another
};

/// What the ranks get. As horovodrun does, leaves out settings whose `needs` is not on.
HorovodEnvironment horovod_environment(const HorovodValues& values);

}  // namespace dtrun::cli
