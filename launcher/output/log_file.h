#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "launcher/output/rotation.h"
#include "launcher/output/sink.h"

#include <sys/types.h>
#include <string>
#include <string_view>

namespace dtrun::output {

/// A file to which everything is appended that its queue is filled with. It is set aside as Rotation says. After
/// the first error everything else is dropped, and counts as taken.
class LogFile final : public Sink {
public:
    /// \param opened  the file, where that is open already. Errc: invalid_input, internal; names the path
    static Result<Running<LogFile>> open(std::string path, Fd opened, Rotation rotation,
                                         BufferQueue::Options options, WrittenFunction taken);

private:
    LogFile(std::string path, Rotation rotation, BufferQueue::Options options,
            WrittenFunction taken);
    Result<void> open_file();
    Result<void> take(Fd opened);
    void write_out(BufferQueue::Buffer& buffer) override;
    bool may_rest() const override { return is_pipe_; }
    Result<void> write(std::string_view bytes);
    Result<void> write_part(std::string_view bytes);
    Result<void> wait_for_reader();

    Rotation rotation_;
    bool is_pipe_ = false;  ///< or a device

    // The thread's own once it runs.
    Fd file_;
    mode_t mode_ = 0;  ///< of the first; those that follow it have the same
    Fill fill_;
};

}  // namespace dtrun::output
