#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "launcher/output/fd_writer.h"
#include "launcher/watch/event.h"

#include <memory>
#include <optional>
#include <string>

namespace dtrun::watch {

/// --log-json: every event as a line of a file, which is appended to. A slow disk holds nothing up: a thread
/// writes.
class EventLog final : public EventListener {
public:
    /// Errc: invalid_input (the file cannot be opened), internal (the machine has no room)
    static Result<std::unique_ptr<EventLog>> open(const std::string& path, std::string job);

    void happened(const Event& event) override;
    /// Writes what is left until the deadline, and ends the thread. \return what could not be written, and why
    std::optional<Error> finish(Deadline deadline);

private:
    EventLog(std::shared_ptr<output::FdWriter> writer, std::string job)
        : job_(std::move(job)), writer_(std::move(writer)) {}

    std::string job_;
    output::Running<output::FdWriter> writer_;
};

}  // namespace dtrun::watch
