#pragma once

#include <cstdint>
#include <string_view>

namespace dtrun {

/// Writes messages to a terminal or a pipe that other processes have as well, and does not wait for who has stopped
/// reading: others rely on the thread that writes. A message waits at most a moment for its reader; then it and those
/// behind it are dropped until the reader reads again, which is then told how many.
class MessageWriter {
public:
    /// \param fd  stays open, and keeps its flags: O_NONBLOCK would be one for all who share it
    explicit MessageWriter(int fd) : fd_(fd) {}

    /// On a terminal they are folded. \param speaker  who says that messages were dropped, e.g. "dtrun"
    void write(std::string_view whole_lines, std::string_view speaker);

private:
    bool has_room(int wait_ms) const;
    bool put(std::string_view text) const;

    int fd_;
    std::uint64_t dropped_ = 0;
};

}  // namespace dtrun
