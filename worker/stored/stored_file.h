#pragma once

#include "base/result.h"

#include <cstdint>
#include <optional>
#include <string>

namespace dtrun::agent {

/// The time of change, in seconds since 1970, by which an agent in a cache vouches for its own file: 2037-01-01, a time
/// that file systems with 32 bits for it still have. Start scripts execute such a file without a look at its modes or
/// its bytes (launcher/transport/agent_script.h, and docs/decisions/037-agents-that-vouch.md for why they may).
inline constexpr std::int64_t kVouchedTime = 2'114'380'800;

/// Whether nobody but its user and root could change the file of an agent that was copied to a cache ("agent-<id>"), or put
/// another one in its place. Takes from others what they may do to the file and its folder. Other files are left alone.
/// \param file  the agent's own
/// Errc: denied (who or what is in the way; the file vouches for nothing then)
Result<void> close_to_others(const std::string& file);

/// Has such a file vouch for what it is. Its bytes are written to the disk before, which may take seconds.
/// Errc: as above. One that cannot be written to the disk, or cannot have that time, vouches for nothing, without a word
Result<void> vouch_for(const std::string& file);

/// Why somebody but us and root could put another folder in the place of this one: the same question that start scripts
/// ask. A group may write beside it: whoever has a group of his own has it as that of his home.
std::optional<std::string> replaceable(const std::string& folder);

/// Start scripts execute what they have opened, "/proc/self/fd/9 --as NAME WORDS". Takes the two words away, has the
/// system show NAME as what runs, and closes the descriptor.
void take_name(int& argc, char** argv);

/// Takes `count` words away from the `first` on, also where the system reads them.
void take_words(int& argc, char** argv, int first, int count);

}  // namespace dtrun::agent
