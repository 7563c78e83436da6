#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/result.h"
#include "rendezvous/wire/control_messages.h"

#include <array>
#include <cstddef>
#include <memory>

namespace dtrun::ranks {

/// Both ends of a new terminal, close-on-exec; the master is non-blocking.
struct Terminal {
    Fd master;
    Fd slave;
};
/// \param size  zeros: 24 rows of 80 characters. Errc: internal
Result<Terminal> open_terminal(TerminalSize size);
void set_terminal_size(int master, TerminalSize size);

/// Copies what is written to a terminal into a pipe, as fast as that is read, until nobody has the terminal
/// open any more; then the pipe ends.
///
/// Thread: the executor's. Lives on by itself while it waits.
class TerminalCopier : public std::enable_shared_from_this<TerminalCopier> {
public:
    /// \param pipe  non-blocking
    TerminalCopier(asio::any_io_executor executor, Fd master, Fd pipe);
    void start() { read(); }
    void resize(TerminalSize size);
    void stop() noexcept;

private:
    void read();
    void write();

    asio::posix::stream_descriptor master_;
    asio::posix::stream_descriptor pipe_;
    std::array<char, 16384> piece_{};
    std::size_t begin_ = 0, end_ = 0;  ///< of `piece_`, what is not in the pipe yet
};

}  // namespace dtrun::ranks
