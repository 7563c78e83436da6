#include "base/standard_streams.h"

#include "base/strings.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <climits>
#include <filesystem>
#include <system_error>

namespace dtrun {
namespace {

/// Nobody else opens /dev/null so, and nothing changes by it.
constexpr int kMark = O_RDWR | O_APPEND;

}  // namespace

void open_standard_streams() {
    for (;;) {
        const int fd = ::open("/dev/null", kMark);
        if (fd > STDERR_FILENO) ::close(fd);
        if (fd < 0 || fd > STDERR_FILENO) return;
    }
}

bool was_closed(int fd) {
    struct stat info {};
    const int flags = ::fcntl(fd, F_GETFL);
    return flags < 0 || ((flags & (O_ACCMODE | O_APPEND)) == kMark && ::fstat(fd, &info) == 0 &&
                         S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3));
}

std::vector<Fd> inherited_besides(int kept) {
    std::vector<int> found;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none))
        if (const auto fd = to_int(entry.path().filename().string(), STDERR_FILENO + 1, INT_MAX))
            found.push_back(static_cast<int>(*fd));
    std::vector<Fd> inherited;
    for (const int fd : found)  // that which has read the folder is closed by now
        if (fd != kept && ::fcntl(fd, F_GETFD) >= 0) inherited.emplace_back(fd);
    return inherited;
}

}  // namespace dtrun
