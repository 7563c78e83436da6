#include "launcher/history/kept_log.h"

#include "base/strings.h"
#include "hostfiles/host.h"
#include "launcher/output/path_pattern.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <utility>

namespace dtrun::history {
namespace {

constexpr std::size_t kReadBytes = 256u << 10;
constexpr std::size_t kStampChars = 23;
constexpr int kFilesMax = 1'001;  // --log-keep is 1000 at most
constexpr int kTries = 10;

bool is_time(std::string_view text) {
    constexpr std::string_view kForm = "0000-00-00T00:00:00.000";
    return text.size() == kForm.size() && std::ranges::equal(text, kForm, [](char c, char form) {
               return form == '0' ? c >= '0' && c <= '9' : c == form;
           });
}

}  // namespace

LogLine parse_log_line(std::string_view line) {
    LogLine found{.text = line};
    if (!is_time(line.substr(0, kStampChars)) || line.substr(kStampChars, 1) != " ") return found;
    found.time = line.substr(0, kStampChars);
    found.text = line.substr(kStampChars + 1);
    // "[3@s1 stdout] "
    const std::size_t end = found.text.find("] ");
    if (!found.text.starts_with('[') || end == std::string_view::npos) return found;
    const std::string_view tag = found.text.substr(1, end - 1);
    const std::size_t host = tag.find('@');
    const std::size_t stream = tag.rfind(' ');
    if (host == std::string_view::npos || stream == std::string_view::npos || stream < host)
        return found;
    const std::string_view name = tag.substr(stream + 1);
    if (name != "stdout" && name != "stderr") return found;
    found.of_dtrun = false;
    found.stream = name == "stdout" ? Stream::out : Stream::err;
    if (const auto rank = to_int(tag.substr(0, host), 0, kRanksMax - 1))
        found.rank = static_cast<int>(*rank);
    found.text.remove_prefix(end + 2);
    return found;
}

std::string_view job_begun_by(const LogLine& line) {
    // "dtrun: job 0123456789ab: 4 ranks on 2 hosts"
    constexpr std::string_view kBegin = "dtrun: job ";
    if (!line.of_dtrun || !line.text.starts_with(kBegin)) return {};
    std::string_view rest = line.text.substr(kBegin.size());
    const std::string_view job = rest.substr(0, output::kJobDigits);
    rest.remove_prefix(job.size());
    const bool is_id = job.size() == output::kJobDigits &&
                       job.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    if (!is_id || !rest.starts_with(": ") || rest.size() < 3) return {};
    const bool has_number = rest[2] >= '0' && rest[2] <= '9';
    return has_number && rest.find(" rank") != std::string_view::npos ? job : std::string_view();
}

std::string KeptLog::name_of(int number) const {
    return number == 0 ? path_ : fmt::format("{}.{}", path_, number);
}

/// Looks at the files from the newest on. A writer may set them aside meanwhile: each moves to the next number, the oldest
/// first, and is seen nevertheless, perhaps twice; and one number after the other is free for a moment.
KeptLog::Found KeptLog::look() const {
    Found found;
    int free = 0;  // numbers in a row
    for (int number = 0; number < kFilesMax && free < 2; ++number) {
        const FileId file = id_of(number);
        free = file == FileId{} ? free + 1 : 0;
        if (free > 0) continue;
        found.has_read = file == part_.id;
        if (found.has_read) break;
        found.next = file;
        found.number = number;
    }
    return found;
}

KeptLog::FileId KeptLog::id_of(int number) const {
    struct stat info {};
    if (::stat(name_of(number).c_str(), &info) != 0) return {};
    return {info.st_dev, info.st_ino};
}

/// Whether the file that is read has no name any more.
bool KeptLog::is_removed() const {
    struct stat info {};
    return ::fstat(part_.file.get(), &info) != 0 || info.st_nlink == 0;
}

/// Opens the file behind the one that is read, so that it can be read when it has been removed; at first the oldest.
void KeptLog::look_ahead() {
    if (ahead_.file || (part_.file && id_of(0) == part_.id)) return;
    // Files may be set aside between two calls here; then all is looked at again.
    for (int tries = 0; tries < kTries; ++tries) {
        const Found found = look();
        const bool has_gap = part_.file && !found.has_read;
        if (has_gap && !is_removed()) continue;
        if (found.next == FileId{}) return;
        Fd opened(::open(name_of(found.number).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        struct stat info {};
        if (!opened || ::fstat(opened.get(), &info) != 0) continue;
        if (FileId{info.st_dev, info.st_ino} != found.next) continue;
        ahead_ = {std::move(opened), found.next, has_gap};
        return;
    }
}

/// Reads some more. \return whether there was any
bool KeptLog::fill() {
    if (at_ > 0) {
        buffer_.erase(0, at_);
        looked_ -= at_;
        at_ = 0;
    }
    for (;;) {
        // Before the end of a file is seen: it gets nothing more once there is one behind it.
        look_ahead();
        const std::size_t before = buffer_.size();
        buffer_.resize(before + kReadBytes);
        const ssize_t size =
            part_.file ? ::read(part_.file.get(), buffer_.data() + before, kReadBytes) : 0;
        buffer_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
        if (size > 0) return true;
        if (size < 0 || !ahead_.file) return false;
        part_ = std::exchange(ahead_, {});
        gap_ = gap_ || part_.has_gap;
    }
}

std::optional<std::string_view> KeptLog::next() {
    for (;;) {
        const std::size_t end = buffer_.find_first_of("\r\n", looked_);
        looked_ = end == std::string::npos ? buffer_.size() : end;
        // Behind '\r' a '\n' may come that belongs to it.
        const bool is_known =
            end != std::string::npos && (buffer_[end] == '\n' || end + 1 < buffer_.size());
        if (!is_known) {
            if (!fill()) return std::nullopt;
            continue;
        }
        const bool has_two = buffer_[end] == '\r' && buffer_[end + 1] == '\n';
        const std::size_t size = end + (has_two ? 2 : 1) - at_;
        const std::string_view line = std::string_view(buffer_).substr(at_, size);
        at_ += size;
        looked_ = at_;
        return line;
    }
}

std::optional<std::string_view> KeptLog::rest() {
    if (at_ == buffer_.size()) return std::nullopt;
    const std::string_view line = std::string_view(buffer_).substr(at_);
    at_ = looked_ = buffer_.size();
    return line;
}

}  // namespace dtrun::history
