#include "base/standard_streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

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

}  // namespace dtrun
