#include "worker/agent/error_files.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace dtrun::agent {

std::string ErrorFiles::open_file(SlotIndex place) {
    Fd file(::memfd_create("error.json", MFD_CLOEXEC));
    if (!file) return {};
    std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), file.get());
    files_[place] = std::move(file);
    return path;
}

std::string ErrorFiles::take(SlotIndex place) {
    const auto file = files_.extract(place);
    if (file.empty()) return {};
    std::string text(kBytesMax, '\0');
    std::size_t size = 0;
    while (size < text.size()) {
        const auto count = ::pread(file.mapped().get(), text.data() + size, text.size() - size,
                                   static_cast<off_t>(size));
        if (count <= 0) break;
        size += static_cast<std::size_t>(count);
    }
    text.resize(size);
    return text;
}

}  // namespace dtrun::agent
