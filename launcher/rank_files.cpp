#include "launcher/rank_files.h"

#include "launcher/writer_thread.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

namespace dtrun {
namespace {

Errc code_of(int error) {
    if (error == ENOENT || error == ENOTDIR) return Errc::not_found;
    if (error == EACCES || error == EPERM || error == EROFS) return Errc::denied;
    return Errc::internal;
}

Result<void> make_directory(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return fail(code_of(error.value()), "{}: {}", path, strerror(error.value()));
    return {};
}

}  // namespace

std::string rank_directory(int rank, int world_size) {
    const auto width = fmt::formatted_size("{}", world_size - 1);
    return fmt::format("rank.{:0{}}", rank, width);
}

Result<std::unique_ptr<RankFiles>> RankFiles::create(std::string directory, int world_size,
                                                     std::size_t open_max,
                                                     BufferQueue::Options options,
                                                     TakenFunction taken) {
    std::unique_ptr<RankFiles> files(
        new RankFiles(std::move(directory), world_size, open_max, options, std::move(taken)));
    if (const auto made = files->make_files(); !made) return std::unexpected(made.error());
    files->thread_ = start_writer_thread([raw = files.get()] { raw->run(); });
    return files;
}

RankFiles::RankFiles(std::string directory, int world_size, std::size_t open_max,
                     BufferQueue::Options options, TakenFunction taken)
    : directory_(std::move(directory)),
      world_size_(world_size),
      open_max_(std::max<std::size_t>(open_max, 1)),
      taken_(std::move(taken)),
      queue_(options),
      files_(stream_index(world_size, Stream::out)) {}

RankFiles::~RankFiles() {
    stop(Clock::now());
    join();
}

Result<void> RankFiles::make_files() {
    if (const auto made = make_directory(directory_); !made) return made;
    for (std::size_t stream = 0; stream < files_.size(); stream++) {
        if (stream_of(stream) == Stream::out) {
            const auto made = make_directory(
                fmt::format("{}/{}", directory_, rank_directory(rank_of(stream), world_size_)));
            if (!made) return made;
        }
        if (!open(stream, O_TRUNC))
            return fail(code_of(errno), "{}: {}", path(stream), strerror(errno));
    }
    return {};
}

std::string RankFiles::path(std::size_t stream) const {
    return fmt::format("{}/{}/{}", directory_, rank_directory(rank_of(stream), world_size_),
                       stream_of(stream) == Stream::out ? "stdout" : "stderr");
}

/// Errors are in errno.
bool RankFiles::open(std::size_t stream, int flags) {
    if (files_[stream].fd) return true;
    if (open_files_.size() == open_max_) close_oldest();
    // O_NONBLOCK matters only if somebody put a FIFO there: then an error instead of a wait.
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
    const std::string name = path(stream);
    int fd = ::open(name.c_str(), kFlags | flags, 0666);
    while (fd < 0 && (errno == EMFILE || errno == ENFILE) && close_oldest())
        fd = ::open(name.c_str(), kFlags | flags, 0666);
    if (fd < 0) return false;
    files_[stream].fd.reset(fd);
    open_files_.push_back(stream);
    return true;
}

/// False: none is open.
bool RankFiles::close_oldest() {
    if (open_files_.empty()) return false;
    files_[open_files_.front()].fd.reset();
    open_files_.pop_front();
    return true;
}

void RankFiles::add(int rank, Stream stream, std::string_view bytes) {
    const auto index = static_cast<std::uint32_t>(stream_index(rank, stream));
    BufferQueue::Filler out(queue_);
    while (!bytes.empty()) {
        const std::size_t written = out.write_some(bytes);
        out.account(index, written);
        bytes.remove_prefix(written);
    }
}

std::vector<Error> RankFiles::take_failures() {
    const std::lock_guard lock(mutex_);
    return std::exchange(failures_, {});
}

void RankFiles::stop(Deadline deadline) {
    queue_.close(deadline);
}

void RankFiles::join() {
    if (thread_.joinable()) thread_.join();
}

void RankFiles::run() {
    std::vector<BufferQueue::Buffer> batch;
    while (queue_.take(batch)) {
        for (BufferQueue::Buffer& buffer : batch) {
            if (queue_.closed() && queue_.time_left() <= Clock::duration::zero())
                unwritten_bytes_ += buffer.size;
            else
                write_out(buffer);
            queue_.release(buffer);
            taken_(buffer.pieces);
            queue_.recycle(std::move(buffer));
        }
        batch.clear();
    }
    if (unwritten_bytes_ > 0) {
        const std::lock_guard lock(mutex_);
        failures_.push_back({Errc::timed_out, fmt::format("{}: too slow, {} bytes not written",
                                                          directory_, unwritten_bytes_)});
    }
    taken_({});
}

/// The pieces of a buffer lie in it one after the other; each file gets its own in one go.
void RankFiles::write_out(const BufferQueue::Buffer& buffer) {
    const char* at = buffer.data.get();
    segments_.clear();
    for (const Taken& piece : buffer.pieces) {
        segments_.push_back({piece.stream, {at, piece.bytes}});
        at += piece.bytes;
    }
    std::ranges::sort(segments_, [](const Segment& a, const Segment& b) {
        if (a.stream != b.stream) return a.stream < b.stream;
        return a.bytes.data() < b.bytes.data();
    });
    const Segment* const end = segments_.data() + segments_.size();
    for (const Segment* begin = segments_.data(); begin != end;) {
        const Segment* next = begin;
        while (next != end && next->stream == begin->stream) next++;
        if (!files_[begin->stream].failed) write_file(begin->stream, begin, next);
        begin = next;
    }
}

void RankFiles::write_file(std::size_t stream, const Segment* begin, const Segment* end) {
    if (!open(stream, 0)) return give_up(stream, strerror(errno));
    std::size_t skip = 0;  // bytes of *begin that have been written
    while (begin != end) {
        iovec parts[64];
        int count = 0;
        for (const Segment* part = begin; part != end && count < 64; part++, count++)
            parts[count] = {const_cast<char*>(part->bytes.data()), part->bytes.size()};
        parts[0].iov_base = static_cast<char*>(parts[0].iov_base) + skip;
        parts[0].iov_len -= skip;
        const ssize_t n = ::writev(files_[stream].fd.get(), parts, count);
        if (n < 0 && errno != EINTR) return give_up(stream, strerror(errno));
        skip += n > 0 ? static_cast<std::size_t>(n) : 0;
        while (begin != end && skip >= begin->bytes.size()) skip -= (begin++)->bytes.size();
    }
}

void RankFiles::give_up(std::size_t stream, std::string_view why) {
    files_[stream].failed = true;
    const std::lock_guard lock(mutex_);
    failures_.push_back(
        {Errc::internal, fmt::format("{}: {}; it is not complete", path(stream), why)});
}

}  // namespace dtrun
