#pragma once

#include "base/fd.h"
#include "base/terminal.h"
#include "base/text_layout.h"
#include "launcher/output/sink.h"

#include <string>
#include <string_view>

namespace dtrun::output {

/// Writes what its queue is filled with to one inherited descriptor, on a thread of its own.
///
/// The descriptor keeps its flags, since other processes share them; still no write blocks where it
/// can be avoided: pipes and terminals are opened a second time, sockets know MSG_DONTWAIT. After
/// the first error (EPIPE, a full disk) everything else is dropped, and counts as taken.
///
/// Lifetime: the descriptor outlives it.
class FdWriter final : public Sink {
public:
    FdWriter(int fd, std::string name, BufferQueue::Options options, WrittenFunction written);

    /// One line kept below everything else on a terminal, cut to its width; elsewhere, and where the terminal has no way
    /// to erase it, nothing happens.
    void set_status(std::string_view text);
    bool has_status() const { return terminal_ && can_erase_; }
    bool is_terminal() const { return terminal_; }
    std::size_t columns() const { return terminal_columns(inherited_); }

private:
    enum class Mode {
        blocking,     // a file or a device: does not wait for anybody
        nonblocking,  // a description of our own
        socket,
        pieces,  // no other way: poll, then write so little that it fits
    };

    void choose_mode();
    void write_out(BufferQueue::Buffer& buffer) override;
    void batch_written() override { draw_status(); }
    void end() override;
    void interrupt() override;
    bool may_rest() const override { return mode_ != Mode::blocking; }
    std::string_view put(std::string_view bytes);
    ssize_t put_some(std::string_view bytes);
    void wait_writable();
    void give_up(Errc code, std::string why);
    void erase_status();
    void draw_status();

    const int inherited_;
    Fd own_;
    int fd_;
    Mode mode_ = Mode::blocking;
    std::size_t piece_bytes_ = 0;  // with Mode::pieces
    bool terminal_ = false;
    const bool can_erase_ = !is_terminal_dumb();
    Fd interrupt_;  // readable once stop() was called

    std::string status_;  // guarded by mutex_

    // The thread's own.
    bool at_line_start_ = true;
    std::string drawn_;  // the status line that can be seen
};

/// Both lead to the same file, pipe or terminal, so that writes to them must take turns.
bool same_file(int fd_a, int fd_b);

}  // namespace dtrun::output
