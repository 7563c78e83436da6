#include "worker/stored/bundled_package.h"

#include "base/crypto.h"
#include "base/fd.h"
#include "base/ids.h"
#include "worker/stored/archive.h"
#include "worker/stored/stored_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <malloc.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kArchiveBytesMax = 64u << 20;
constexpr std::size_t kUnpackedBytesMax = 256u << 20;
constexpr std::string_view kCopied = "agent-";  // how the name of an agent begins that was copied
constexpr std::string_view kInstalled =
    "dtrun-agent";  // and of others; "-CPU" follows beside a dtrun of another one
constexpr std::time_t kDay = 24 * 60 * 60;

/// Whether nobody could have changed what is in folders but root and `owners`; else who or what is in the way.
/// A group may write: whoever installs for one has chosen it, and into what was unpacked nobody else comes.
///
/// Every agent looks at each file of the package before its ranks start: once, and by names in open folders, since the
/// kernel looks up each folder of a whole path again.
class Changeable {
public:
    /// \param links  they may lead elsewhere, where the same is asked
    Changeable(std::span<const uid_t> owners, bool links) : owners_(owners), links_(links) {}

    std::optional<std::string> look(const fs::path& folder) {
        path_ = folder.native();
        top_ = path_.size() + 1;
        if (auto why = look_at(AT_FDCWD, path_.c_str())) return why;
        return look_below(AT_FDCWD, path_.c_str());
    }

    /// After look(): the same text as that of PackageDigests. What Python has compiled is not part of it.
    std::string names_digest() {
        std::ranges::sort(files_);
        std::string lines;
        for (const auto& [name, bytes] : files_) lines += fmt::format("{} {}\n", bytes, name);
        return hex(sha256(lines));
    }

private:
    std::optional<std::string> look_at(int folder, const char* name) {
        struct stat info {};
        const bool is_compiled = path_.find("/__pycache__/", top_ - 1) != std::string::npos;
        if (::fstatat(folder, name, &info, links_ ? 0 : AT_SYMLINK_NOFOLLOW) != 0) {
            // What a Python writes there has another name until it is whole.
            if (errno == ENOENT && is_compiled) return std::nullopt;
            return path_ + " cannot be looked at";
        }
        if (S_ISLNK(info.st_mode)) return path_ + " is a link";
        if (info.st_uid != 0 && std::ranges::find(owners_, info.st_uid) == owners_.end())
            return fmt::format("{} belongs to user {}", path_, info.st_uid);
        if ((info.st_mode & S_IWOTH) != 0) return "others may write to " + path_;
        if (!S_ISDIR(info.st_mode) && path_.size() > top_ && !is_compiled)
            files_.emplace_back(path_.substr(top_), info.st_size);
        return std::nullopt;
    }

    /// Without readdir(), which takes 32 KiB and two more system calls for each folder.
    std::optional<std::string> look_below(int folder, const char* name) {
        const Fd below(::openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!below) return fmt::format("{}: {}", path_, strerror(errno));
        const std::size_t length = path_.size();
        alignas(dirent) std::array<char, 4096> entries;
        for (;;) {
            const long bytes =
                ::syscall(SYS_getdents64, below.get(), entries.data(), entries.size());
            if (bytes < 0) return fmt::format("{}: {}", path_, strerror(errno));
            if (bytes == 0) return std::nullopt;
            for (long at = 0; at < bytes;) {
                const auto* const entry = reinterpret_cast<const dirent*>(entries.data() + at);
                at += entry->d_reclen;
                const std::string_view named = entry->d_name;
                if (named == "." || named == "..") continue;
                path_.append("/").append(named);
                if (auto why = look_at(below.get(), entry->d_name)) return why;
                if (is_folder(below.get(), *entry))
                    if (auto why = look_below(below.get(), entry->d_name)) return why;
                path_.resize(length);
            }
        }
    }

    static_assert(sizeof(dirent::d_off) == 8 && offsetof(dirent, d_name) == 19, "the kernel's");

    /// Not a link to one.
    static bool is_folder(int folder, const dirent& entry) {
        if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
        struct stat info {};
        return ::fstatat(folder, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
               S_ISDIR(info.st_mode);
    }

    std::span<const uid_t> owners_;
    bool links_;
    std::string path_;     ///< of what is looked at
    std::size_t top_ = 0;  ///< where in it the name below the folder begins
    std::vector<std::pair<std::string, std::int64_t>> files_{};
};

/// As it was unpacked: whoever may not enter it changes nothing below it.
bool is_ours_alone(const fs::path& folder) {
    struct stat info {};
    return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
           info.st_uid == ::geteuid() && (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

Error file_error(const fs::path& file) {
    const Errc code = errno == EACCES || errno == EPERM ? Errc::denied : Errc::internal;
    return Error{code, fmt::format("{}: {}", file.native(), strerror(errno))};
}

/// Others may not write there, whatever the umask. Opening a file there tells what is wrong.
void make_folders(const fs::path& folder) {
    std::error_code error;
    if (fs::exists(folder, error) || !folder.has_relative_path()) return;
    make_folders(folder.parent_path());
    ::mkdir(folder.c_str(), 0755);
}

/// Files of a folder that come piece by piece, one after the other. Nobody waits until they are on the disk: of one that a
/// crash has not left whole the size is another one, which is seen at the next start.
class NewFiles {
public:
    explicit NewFiles(const std::string& folder) : folder_(folder) {}

    Result<void> write(const std::string& name, std::uint64_t at, std::string_view piece) {
        if (at == 0)
            if (auto begun = begin(folder_ / name); !begun) return begun;
        if (!write_all(opened_.get(), piece)) return std::unexpected(file_error(folder_ / name));
        return {};
    }

    /// The last one: what a file server cannot store it may say only then.
    Result<void> close() {
        if (opened_ && ::close(opened_.release()) != 0) return std::unexpected(file_error(folder_));
        return {};
    }

private:
    Result<void> begin(const fs::path& file) {
        if (auto closed = close(); !closed) return closed;
        make_folders(file.parent_path());
        // Python would make it as the umask has it, and what others may write to is unpacked again.
        if (file.extension() == ".py") make_folders(file.parent_path() / "__pycache__");
        opened_ = Fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
        if (!opened_) return std::unexpected(file_error(file));
        return {};
    }

    fs::path folder_;
    Fd opened_{};
};

/// Gives a folder its name. Of several agents that do it at once, on this host or on others that have the same home,
/// one is first, and the others take its folder.
/// \param instead  of one that is not to be used, which is in `made` then, or away
bool put_in_place(const std::string& made, const fs::path& folder, bool instead) {
    if (instead && ::syscall(SYS_renameat2, AT_FDCWD, made.c_str(), AT_FDCWD, folder.c_str(),
                             RENAME_EXCHANGE) == 0)
        return true;
    std::error_code error;
    if (instead) {  // not every file system can do that
        std::string away = (folder.parent_path() / ".new.away.XXXXXX").native();
        if (::mkdtemp(away.data()) == nullptr || ::rename(folder.c_str(), away.c_str()) != 0)
            return false;
        fs::remove_all(away, error);
    }
    return ::rename(made.c_str(), folder.c_str()) == 0 || fs::exists(folder, error);
}

/// \param made  a folder of our own
Result<void> unpack_into(const std::string& made, const fs::path& archive, std::string_view digest,
                         std::string_view remedy) {
    const auto bytes = read_file(archive, kArchiveBytesMax);
    if (!bytes) return std::unexpected(bytes.error());
    if (hex(sha256(*bytes)) != digest)
        return fail(Errc::invalid_input, "{}: damaged; {}", archive.native(), remedy);
    NewFiles files(made);
    const auto read =
        read_archive(*bytes, kUnpackedBytesMax,
                     [&files](const std::string& name, std::uint64_t at, std::string_view piece) {
                         return files.write(name, at, piece);
                     });
    if (!read) return fail(read.error(), "{}", archive.native());
    return files.close();
}

Result<void> unpack(const fs::path& archive, std::string_view digest, const fs::path& folder,
                    bool instead, std::string_view remedy) {
    std::string made = (folder.parent_path() / ".new.package.XXXXXX").native();
    if (::mkdtemp(made.data()) == nullptr) return std::unexpected(file_error(made));
    auto done = unpack_into(made, archive, digest, remedy);
    if (done && !put_in_place(made, folder, instead)) done = std::unexpected(file_error(folder));
    std::error_code error;
    fs::remove_all(made, error);  // it is gone if it has got its name
#ifdef __GLIBC__
    ::malloc_trim(0);  // an agent would keep what this has needed until it ends
#endif
    return done;
}

/// What was not used for a month is removed when another agent is stored (launcher/transport/agent_script.h).
void mark_used(const fs::path& folder) {
    struct stat info {};
    if (::stat(folder.c_str(), &info) == 0 && std::time(nullptr) - info.st_mtime > kDay)
        ::utimensat(AT_FDCWD, folder.c_str(), nullptr, 0);
}

/// The folder into which an archive was unpacked, or is now.
/// \param remedy  what to do about an archive, or a folder without one, that is not as it was
Result<std::string> unpacked(const fs::path& folder, const fs::path& archive,
                             const PackageDigests& digests, const std::string& remedy) {
    std::error_code error;
    const bool is_there = fs::is_directory(folder, error);
    const std::array owners{::geteuid()};
    Changeable found(owners, false);
    if (is_there && is_ours_alone(folder) && !found.look(folder) &&
        found.names_digest() == digests.names) {
        mark_used(folder);
        return folder.native();
    }
    if (is_there && !fs::exists(archive, error))
        return fail(Errc::denied, "{} is damaged, or others could have changed it; {}",
                    folder.native(), remedy);
    if (auto done = unpack(archive, digests.archive, folder, is_there, remedy); !done)
        return std::unexpected(done.error());
    return folder.native();
}

/// As the scripts that copy agents make it (launcher/transport/agent_script.h).
/// Errc: not_found, for ranks of whoever has no place for it may not miss it; denied (others could put theirs there)
Result<void> make_cache(const fs::path& cache) {
    if (cache.empty()) return fail(Errc::not_found, "neither XDG_CACHE_HOME nor HOME is set");
    std::error_code error;
    fs::create_directories(cache.parent_path(), error);  // making the cache tells what is wrong
    struct stat info {};
    if ((::mkdir(cache.c_str(), 0700) != 0 && errno != EEXIST) || ::stat(cache.c_str(), &info) != 0)
        return fail(Errc::not_found, "{}: {} (XDG_CACHE_HOME says where)", cache.native(),
                    strerror(errno));
    if (info.st_uid != ::geteuid() || !S_ISDIR(info.st_mode))
        return fail(Errc::not_found, "{} belongs to somebody else (XDG_CACHE_HOME says where)",
                    cache.native());
    // It may be a link to where there is more room; somebody else's leads elsewhere a moment later.
    struct stat link {};
    if (::lstat(cache.c_str(), &link) != 0 || (link.st_uid != 0 && link.st_uid != ::geteuid()))
        return fail(Errc::denied, "{} is a link of user {}; remove it, or set XDG_CACHE_HOME",
                    cache.native(), link.st_uid);
    for (const fs::path& way : {cache, fs::canonical(cache, error)})
        if (const auto why = replaceable(way.native()))
            return fail(Errc::denied,
                        "{}, so {} is not safe there: set XDG_CACHE_HOME on this host to a folder "
                        "of your own",
                        *why, cache.native());
    if ((info.st_mode & 07777) != 0700 && ::chmod(cache.c_str(), 0700) != 0)
        return fail(Errc::not_found, "{}: {}", cache.native(), strerror(errno));
    return {};
}

/// Beside an agent that was installed: a folder, as it was built, or the archive alone, as packages bring it.
Result<std::string> installed_package(const fs::path& agent, const PackageDigests& digests,
                                      const fs::path& cache) {
    const fs::path folder = agent.parent_path() / "package";
    const std::string name = agent.filename();
    const std::string of_cpu = name.starts_with(kInstalled) ? name.substr(kInstalled.size()) : "";
    const fs::path archive = agent.parent_path() / fmt::format("dtrun-package{}.tar.gz", of_cpu);
    std::error_code error;
    if (of_cpu.empty() && fs::is_directory(folder, error)) {
        // Whoever has installed the agent could have it do what he likes.
        std::vector<uid_t> owners{::geteuid()};
        struct stat info {};
        if (::stat(agent.c_str(), &info) == 0) owners.push_back(info.st_uid);
        if (const auto why = Changeable(owners, true).look(folder))
            return fail(Errc::denied, "{} could have been changed by others: {}", folder.native(),
                        *why);
        return folder.native();
    }
    if (!fs::exists(archive, error)) return fail(Errc::not_found, "{}: not there", folder.native());
    if (auto made = make_cache(cache); !made) return std::unexpected(made.error());
    return unpacked(cache / fmt::format("package-{}", digests.archive.substr(0, 40)), archive,
                    digests, "install dtrun again on this host");
}

/// Of the file system that has a folder, or will have it.
bool is_noexec(fs::path folder) {
    std::error_code error;
    while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
    struct statvfs mounted {};
    return ::statvfs(folder.c_str(), &mounted) == 0 && (mounted.f_flag & ST_NOEXEC) != 0;
}

}  // namespace

std::string cache_for_code(const std::string& cache, const std::string& elsewhere) {
    return !cache.empty() && is_noexec(cache) && !is_noexec(elsewhere) ? elsewhere : cache;
}

Result<std::string> find_package(const std::string& agent, const PackageDigests& digests,
                                 const std::string& cache) {
    const fs::path file = agent;
    const std::string name = file.filename();
    if (digests.archive.empty()) return fail(Errc::not_found, "{}: it carries none", agent);
    if (!name.starts_with(kCopied)) return installed_package(file, digests, cache);
    const fs::path folder = file.parent_path() / ("package-" + name.substr(kCopied.size()));
    const fs::path archive = folder.native() + ".tar.gz";
    std::error_code error;
    if (!fs::exists(folder, error) && !fs::exists(archive, error))
        return fail(Errc::not_found, "{}: not there", archive.native());
    return unpacked(folder, archive, digests, fmt::format("remove it, and {} beside it", name));
}

void add_to_python_path(const std::string& package, bool horovod, contracts::Environment& env) {
    std::string& path = env["PYTHONPATH"];
    path += (path.empty() ? "" : ":") + package + "/pythonpath";
    if (horovod) path = package + "/lib/dtrun/python/horovod_shim:" + path;
    path = package + "/dtrun_startup:" + path;
}

}  // namespace dtrun::agent
