#include "launcher/watch/event_log.h"

#include <fcntl.h>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace dtrun::watch {

Result<std::unique_ptr<EventLog>> EventLog::open(const std::string& path, std::string job) {
    Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!file) return fail(Errc::invalid_input, "--log-json: {}: {}", path, std::strerror(errno));
    return std::unique_ptr<EventLog>(new EventLog(std::move(file), path, std::move(job)));
}

EventLog::EventLog(Fd file, const std::string& path, std::string job)
    : file_(std::move(file)),
      job_(std::move(job)),
      writer_(file_.get(), path, output::BufferQueue::Options{},
              [](std::span<const output::Taken>) {}) {}

void EventLog::happened(const Event& event) {
    output::BufferQueue::Filler filler(writer_.queue());
    filler.write(to_json(event, job_) + "\n");
}

std::optional<Error> EventLog::finish(Deadline deadline) {
    writer_.stop(deadline);
    writer_.join();
    return writer_.take_failure();
}

}  // namespace dtrun::watch
