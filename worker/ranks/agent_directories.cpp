#include "worker/ranks/agent_directories.h"

#include "base/crypto.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/strings.h"

#include <fcntl.h>
#include <sys/file.h>
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
#include <utility>
#include <vector>

namespace dtrun::ranks {

namespace {

constexpr int kTriesMax = 16;
constexpr std::size_t kTriedBytes = 4096;  // a page, and a block of most file systems
constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

/// Whether the name is still that of what is open.
bool is_at(const std::string& path, const Fd& open) {
    struct stat there {
    }, here{};
    return ::lstat(path.c_str(), &there) == 0 && ::fstat(open.get(), &here) == 0 &&
           there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

/// Holds a directory that was made just now.
/// \return empty: somebody has swept it, or is about to. A descriptor without a lock where there are none:
///         nobody can sweep there.
Fd hold(const std::string& path) {
    Fd directory(::open(path.c_str(), kDirectoryFlags));
    if (!directory) return {};
    if (::flock(directory.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) return {};
    if (!is_at(path, directory)) return {};
    return directory;
}

struct HeldDirectory {
    std::string path;
    Fd held;
};

/// As mkdtemp(). Between its making and its holding a directory may be swept.
Result<HeldDirectory> make_held(const std::string& form) {
    for (int i = 0; i < kTriesMax; ++i) {
        std::string path = form;
        if (::mkdtemp(path.data()) == nullptr)
            return fail(Errc::internal, "{}: {}", form, std::strerror(errno));
        if (Fd held = hold(path)) return HeldDirectory{std::move(path), std::move(held)};
    }
    return fail(Errc::internal, "{}: removed as soon as it is made", form);
}

Result<void> try_to_write(const std::string& directory) {
    const std::string file = directory + "/try";
    const auto done = create_file(file, std::string(kTriedBytes, '.'));
    ::unlink(file.c_str());
    return done;
}

bool is_ours(const Fd& directory) {
    struct stat info {};
    return ::fstat(directory.get(), &info) == 0 && info.st_uid == ::geteuid();
}

}  // namespace

void AgentDirectories::add(const std::string& directory, Fd held) {
    const auto free = std::ranges::find(paths_, '\0', [](const auto& path) { return path[0]; });
    if (free == paths_.end() || directory.empty() || directory.size() >= kPathBytesMax) {
        held.release();  // held for as long as we live
        return;
    }
    held_[static_cast<std::size_t>(free - paths_.begin())] = held ? held.release() : 0;
    // Its first byte last: the guard may look at any moment.
    std::copy(directory.begin() + 1, directory.end(), free->begin() + 1);
    (*free)[0] = directory[0];
}

void AgentDirectories::remove(const std::string& directory) {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
        if (paths_[i].data() != directory) continue;
        paths_[i].fill('\0');
        if (const int held = std::exchange(held_[i], 0); held > 0) ::close(held);
    }
}

void AgentDirectories::clean() noexcept {
    for (auto& path : paths_) {
        if (path[0] == '\0') continue;
        std::error_code ignored;
        std::filesystem::remove_all(path.data(), ignored);
        path.fill('\0');
    }
}

Result<std::string> make_directory(const std::string& prefix,
                                   const std::array<const char*, 2>& parents, DirectoryUse use) {
    std::vector<std::string> reasons;
    for (const char* const parent : parents) {
        auto made = make_held(fmt::format("{}/{}XXXXXX", parent, prefix));
        Result<void> done;
        if (!made) done = std::unexpected(made.error());
        if (made && use == DirectoryUse::files) done = try_to_write(made->path);
        if (done) {
            agent_directories().add(made->path, std::move(made->held));
            return std::move(made->path);
        }
        if (made) ::rmdir(made->path.c_str());
        reasons.push_back(done.error().message);
    }
    return fail(Errc::internal, "no directory: {}", join_names(reasons));
}

void remove_directory(const std::string& directory) {
    std::error_code error;
    std::filesystem::remove_all(directory, error);
    if (error)
        log::warn("{}: {}", directory, error.message());
    else
        agent_directories().remove(directory);
}

std::string directory_prefix(const std::string& job, std::uint64_t agent) {
    const Sha256 digest = sha256(fmt::format("dtrun directory of {} {}", job, agent));
    return fmt::format("{}{}-", kDirectoryPrefix, hex(std::span(digest).first(6)));
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

/// Who makes a directory and who sweeps it lock the directory itself, which nobody else can open.
int sweep_directories(const std::string& parent) {
    int swept = 0;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
         entry.increment(error)) {
        if (!entry->path().filename().native().starts_with(kDirectoryPrefix)) continue;
        const Fd directory(::open(entry->path().c_str(), kDirectoryFlags));
        if (!directory || !is_ours(directory)) continue;
        if (::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) continue;
        std::error_code ignored;
        std::filesystem::remove_all(entry->path(), ignored);
        ++swept;
    }
    return swept;
}

AgentDirectories& agent_directories() {
    static AgentDirectories& shared = *[] {
        void* const memory = ::mmap(nullptr, sizeof(AgentDirectories), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return new AgentDirectories;  // of this process alone
        return new (memory) AgentDirectories;
    }();
    return shared;
}

}  // namespace dtrun::ranks
