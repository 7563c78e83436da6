#include "launcher/watch/event_log.h"

#include "base/fd.h"
#include "launcher/output/file_place.h"

#include <span>
#include <utility>

namespace dtrun::watch {

Result<std::unique_ptr<EventLog>> EventLog::open(const std::string& path, std::string job) {
    auto opened = output::open_log_file(path);
    if (!opened) return fail(opened.error(), "--log-json");
    // The thread may be left behind with it.
    const auto file = std::make_shared<const Fd>(std::move(*opened));
    auto writer =
        std::make_shared<output::FdWriter>(file->get(), path, output::BufferQueue::Options{},
                                           [file](std::span<const output::Written>) {});
    return std::unique_ptr<EventLog>(new EventLog(std::move(writer), std::move(job)));
}

void EventLog::happened(const Event& event) {
    output::BufferQueue::Filler filler(writer_->queue());
    filler.write(to_json(event, job_) + "\n");
}

std::optional<Error> EventLog::finish(Deadline deadline) {
    writer_->stop(deadline);
    writer_->join();
    return writer_->take_failure();
}

}  // namespace dtrun::watch
