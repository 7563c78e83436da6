#include "launcher/report/report_file.h"

#include "launcher/output/file_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace dtrun::report {
namespace {

namespace fs = std::filesystem;

constexpr int kLinksMax = 40;  // as the kernel follows

/// Where links lead that are ours or root's, whether something is there or not. Errc: invalid_input
Result<fs::path> follow(fs::path path) {
    for (int links = 0; links < kLinksMax; ++links) {
        struct stat found {};
        if (::lstat(path.c_str(), &found) != 0 || !S_ISLNK(found.st_mode)) return path;
        if (found.st_uid != ::geteuid() && found.st_uid != 0)
            return fail(Errc::invalid_input, "{}", output::no_place(ELOOP).why);
        std::error_code error;
        const fs::path to = fs::read_symlink(path, error);
        if (error) return fail(Errc::invalid_input, "{}", error.message());
        path = path.parent_path() / to;  // which is `to` where that is absolute
    }
    return fail(Errc::invalid_input, "{}", std::strerror(ELOOP));
}

}  // namespace

Result<ReportFile> ReportFile::open(const std::string& path, const std::string& word) {
    if (path == "-")
        return fail(Errc::invalid_input,
                    "'-' is no file: what ranks print goes to standard output");
    // Also by a link of /proc, as bash's >(…) is one.
    struct stat meant {};
    if (::stat(path.c_str(), &meant) == 0 && !S_ISREG(meant.st_mode) && !S_ISDIR(meant.st_mode))
        return fail(Errc::invalid_input, "{}: it is no file that can be replaced", path);
    const auto real = follow(path);
    if (!real) return fail(real.error(), "{}", path);
    ReportFile file;
    file.path_ = path;
    file.name_ = real->filename();
    file.coming_ = fmt::format(".dtrun-{}.report", word);
    const std::string folder = real->parent_path();
    file.folder_.reset(
        ::open(folder.empty() ? "." : folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!file.folder_) return file.failed(errno);
    if (file.name_.empty()) return file.failed(EISDIR);
    struct stat found {
    }, around{};
    const bool is_there =
        ::fstatat(file.folder_.get(), file.name_.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
    if (!is_there && errno != ENOENT) return file.failed(errno);
    if (is_there && S_ISDIR(found.st_mode)) return file.failed(EISDIR);
    // In /tmp and its like nobody may replace what belongs to others.
    const uid_t us = ::geteuid();
    const bool is_sticky =
        ::fstat(file.folder_.get(), &around) == 0 && (around.st_mode & S_ISVTX) != 0;
    if (is_there && is_sticky && us != 0 && found.st_uid != us && around.st_uid != us)
        return file.failed(EPERM);
    const auto made = file.make();
    if (!made) return std::unexpected(made.error());
    ::unlinkat(file.folder_.get(), file.coming_.c_str(), 0);
    return file;
}

Result<Fd> ReportFile::make() const {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    Fd file(::openat(folder_.get(), coming_.c_str(), kFlags, 0666));
    if (!file) return failed(errno);
    return file;
}

std::unexpected<Error> ReportFile::failed(int error) const {
    return fail(output::code_of_file_error(error), "{}: {}", path_, std::strerror(error));
}

Result<void> ReportFile::write(std::string_view text) const {
    auto file = make();
    if (!file) return std::unexpected(file.error());
    auto written = write_all(file->get(), text);
    if (!written) written = fail(written.error(), "{}", path_);
    // A file server may say only now that there is no room.
    if (::close(file->release()) != 0 && written) written = failed(errno);
    if (written && ::renameat(folder_.get(), coming_.c_str(), folder_.get(), name_.c_str()) != 0)
        written = failed(errno);
    if (!written) ::unlinkat(folder_.get(), coming_.c_str(), 0);
    return written;
}

}  // namespace dtrun::report
