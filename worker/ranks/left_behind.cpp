#include "worker/ranks/left_behind.h"

#include "base/crypto.h"
#include "base/ids.h"
#include "base/log.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <span>

namespace dtrun::ranks {

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

Result<std::string> make_directory(const std::string& prefix) {
    for (const char* const parent : kDirectoryParents) {
        std::string path = fmt::format("{}/{}XXXXXX", parent, prefix);
        if (::mkdtemp(path.data()) == nullptr) continue;
        left_behind().add(path);
        return path;
    }
    return fail(Errc::internal, "no directory in /dev/shm or /tmp: {}", std::strerror(errno));
}

void remove_directory(const std::string& directory) {
    std::error_code error;
    std::filesystem::remove_all(directory, error);
    if (error)
        log::warn("{}: {}", directory, error.message());
    else
        left_behind().remove(directory);
}

std::string directory_prefix(const std::string& job, std::uint64_t agent) {
    const Sha256 digest = sha256(fmt::format("dtrun directory of {} {}", job, agent));
    return "dtrun-" + hex(std::span(digest).first(6)) + "-";
}

int clean_directories(const std::string& job, std::uint64_t agent) {
    const std::string prefix = directory_prefix(job, agent);
    int cleaned = 0;
    for (const char* const parent : kDirectoryParents) {
        std::error_code error;
        for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
            if (!entry.path().filename().string().starts_with(prefix)) continue;
            struct stat info {};
            const bool ours = ::lstat(entry.path().c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                              info.st_uid == ::geteuid();
            if (!ours) continue;
            std::error_code ignored;
            std::filesystem::remove_all(entry.path(), ignored);
            ++cleaned;
        }
    }
    return cleaned;
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

}  // namespace dtrun::ranks
