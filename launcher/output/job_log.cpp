#include "launcher/output/job_log.h"

#include "base/simulated.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

namespace dtrun::output {
namespace {

constexpr std::size_t kLogSliceBytes = 32u << 10;  // formatted under one lock

}  // namespace

Result<std::unique_ptr<JobLog>> JobLog::open(std::string path, Fd opened, Rotation rotation,
                                             BufferQueue::Options options, PartBudget& parts,
                                             WrittenFunction taken) {
    auto file = LogFile::open(std::move(path), std::move(opened), rotation, options, taken);
    if (!file) return std::unexpected(file.error());
    return std::unique_ptr<JobLog>(new JobLog(std::move(*file), parts, std::move(taken)));
}

LineStart JobLog::start(std::size_t stream, Rank number) const {
    return Tag::logged.start(fmt::format("{}", number), streams_[stream].host, stream_of(stream));
}

void JobLog::add_stream(std::string host, Rank number) {
    const std::size_t stream = streams_.size();
    streams_.push_back({std::move(host), LinePrefixer({}, parts_)});
    streams_[stream].lines.set_start(start(stream, number));
}

void JobLog::set_number(std::size_t stream, Rank number) {
    if (backlog_.empty())
        streams_[stream].lines.set_start(start(stream, number));
    else
        backlog_.push_back({.stream = stream, .number = number});
}

void JobLog::add(std::size_t stream, std::int64_t time_ns, std::string_view bytes) {
    if (backlog_.empty()) bytes.remove_prefix(add_some(stream, time_ns, bytes));
    if (!bytes.empty()) backlog_.push_back({stream, time_ns, std::string(bytes)});
}

void JobLog::finish(std::size_t stream) {
    if (backlog_.empty())
        end_line(stream);
    else
        backlog_.push_back({.stream = stream, .end = true});
}

void JobLog::end_line(std::size_t stream) {
    BufferQueue::Filler out(file_->queue());
    streams_[stream].lines.finish(out);
}

/// \return how many bytes the file takes
std::size_t JobLog::add_some(std::size_t stream, std::int64_t time_ns, std::string_view bytes) {
    std::size_t added = 0;
    while (added < bytes.size() && !file_->queue().full()) {
        const std::string_view slice = bytes.substr(added, kLogSliceBytes);
        const std::string_view stamp = timestamp_.text(time_ns);
        BufferQueue::Filler out(file_->queue());
        streams_[stream].lines.add(slice, stamp, out);
        out.account(static_cast<std::uint32_t>(stream), slice.size());
        added += slice.size();
    }
    return added;
}

void JobLog::pump() {
    while (!backlog_.empty() && !file_->queue().full()) {
        Waiting& next = backlog_.front();
        if (next.number) streams_[next.stream].lines.set_start(start(next.stream, *next.number));
        const std::string_view rest = std::string_view(next.bytes).substr(next.logged);
        next.logged += add_some(next.stream, next.time_ns, rest);
        if (next.logged < next.bytes.size()) break;
        if (next.end) end_line(next.stream);
        backlog_.pop_front();
    }
}

void JobLog::message(std::string_view whole_lines) {
    Timestamp now;
    const std::string stamp(now.text(since_1970().count()));
    BufferQueue::Filler out(file_->queue());
    while (!whole_lines.empty()) {
        const std::size_t size = std::min(whole_lines.find('\n'), whole_lines.size() - 1) + 1;
        out.write(stamp);
        out.write(" ");
        out.write(whole_lines.substr(0, size));
        whole_lines.remove_prefix(size);
    }
}

void JobLog::stop(Deadline deadline) {
    std::size_t dropped = 0;
    for (const Waiting& each : backlog_) {
        const Written rest{static_cast<std::uint32_t>(each.stream),
                           each.bytes.size() - each.logged};
        taken_({&rest, 1});
        dropped += rest.bytes;
    }
    backlog_.clear();
    file_->stop(deadline, dropped);
}

}  // namespace dtrun::output
