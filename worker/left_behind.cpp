#include "worker/left_behind.h"

#include <sys/mman.h>
#include <algorithm>
#include <filesystem>
#include <new>

namespace dtrun {

void LeftBehind::add(const std::string& directory) {
    const auto free = std::ranges::find(paths_, '\0', [](const auto& path) { return path[0]; });
    if (free == paths_.end() || directory.empty() || directory.size() >= kPathBytesMax) return;
    // Its first byte last: the guard may look at any moment.
    std::copy(directory.begin() + 1, directory.end(), free->begin() + 1);
    (*free)[0] = directory[0];
}

void LeftBehind::remove(const std::string& directory) {
    for (auto& path : paths_)
        if (path.data() == directory) path.fill('\0');
}

void LeftBehind::clean() noexcept {
    for (auto& path : paths_) {
        if (path[0] == '\0') continue;
        std::error_code ignored;
        std::filesystem::remove_all(path.data(), ignored);
        path.fill('\0');
    }
}

LeftBehind& left_behind() {
    static LeftBehind& shared = *[] {
        void* const memory = ::mmap(nullptr, sizeof(LeftBehind), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return new LeftBehind;  // of this process alone
        return new (memory) LeftBehind;
    }();
    return shared;
}

}  // namespace dtrun
