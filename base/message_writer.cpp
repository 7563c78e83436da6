#include "base/message_writer.h"

#include "base/text_layout.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <cerrno>
#include <string>

namespace dtrun {
namespace {

/// How long a message waits for a busy reader.
constexpr int kReaderWaitMs = 50;
/// When poll() reports room, there is room for so much, unless another process fills it in between: PIPE_BUF.
constexpr std::size_t kPieceBytes = 4096;

}  // namespace

void MessageWriter::write(std::string_view whole_lines, std::string_view speaker) {
    if (dropped_ > 0 && has_room(0)) {
        const std::string note =
            fmt::format("{}: nobody read {} lines, which are not here\n", speaker, dropped_);
        if (put(note)) dropped_ = 0;
    }
    std::string folded;
    if (const std::size_t columns = terminal_columns(fd_); columns > 0)
        whole_lines = folded = fold_messages(whole_lines, columns);
    if (dropped_ > 0 || !has_room(kReaderWaitMs) || !put(whole_lines)) ++dropped_;
}

bool MessageWriter::has_room(int wait_ms) const {
    pollfd state{fd_, POLLOUT, 0};
    int ready = 0;
    do {
        ready = ::poll(&state, 1, wait_ms);
    } while (ready < 0 && errno == EINTR);
    return ready != 0;  // errors also count as ready: write() reports them
}

/// \return false when the reader stopped before the end of it
bool MessageWriter::put(std::string_view text) const {
    while (!text.empty()) {
        if (!has_room(kReaderWaitMs)) return false;
        const auto piece = text.substr(0, kPieceBytes);
        const ssize_t n = ::write(fd_, piece.data(), piece.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno != EAGAIN;  // other errors give the message up
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
}

}  // namespace dtrun
