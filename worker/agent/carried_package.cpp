#include "worker/agent/carried_package.h"

#include "base/crypto.h"
#include "base/fd.h"
#include "base/ids.h"
#include "worker/agent/archive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

namespace dtrun::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kArchiveBytesMax = 64u << 20;
constexpr std::size_t kUnpackedBytesMax = 256u << 20;
constexpr std::string_view kCopied = "agent-";  // how the name of an agent begins that was copied
constexpr std::time_t kDay = 24 * 60 * 60;

Error file_error(const fs::path& file) {
    const Errc code = errno == EACCES || errno == EPERM ? Errc::denied : Errc::internal;
    return Error{code, fmt::format("{}: {}", file.native(), strerror(errno))};
}

/// All of it is on the disk afterwards: a crash must not leave a folder with half of its files.
Result<void> write_file(const fs::path& file, std::string_view bytes) {
    std::error_code error;
    fs::create_directories(file.parent_path(), error);  // opening the file tells what is wrong
    const Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd) return std::unexpected(file_error(file));
    if (!write_all(fd.get(), bytes) || ::fsync(fd.get()) != 0)
        return std::unexpected(file_error(file));
    return {};
}

Result<void> write_files(const fs::path& folder, const std::vector<ArchivedFile>& files) {
    for (const ArchivedFile& file : files)
        if (auto written = write_file(folder / file.name, file.bytes); !written) return written;
    return {};
}

/// Of several agents that do it at once, on this host or on others that have the same home, one is first, and the
/// others take its folder.
Result<void> unpack(const fs::path& archive, std::string_view digest, const fs::path& folder) {
    const auto bytes = read_file(archive, kArchiveBytesMax);
    if (!bytes) return std::unexpected(bytes.error());
    if (hex(sha256(*bytes)) != digest)
        return fail(Errc::invalid_input, "{}: damaged; remove it, and {} beside it",
                    archive.native(), "agent" + folder.filename().native().substr(7));
    const auto files = read_archive(*bytes, kUnpackedBytesMax);
    if (!files) return fail(files.error(), "{}", archive.native());
    std::string made = (folder.parent_path() / ".new.package.XXXXXX").native();
    if (::mkdtemp(made.data()) == nullptr) return std::unexpected(file_error(made));
    auto done = write_files(made, *files);
    std::error_code error;
    if (done && ::rename(made.c_str(), folder.c_str()) != 0 && !fs::exists(folder, error))
        done = std::unexpected(file_error(folder));
    fs::remove_all(made, error);  // it is gone if it has got its name
    return done;
}

/// What was not used for a month is removed when another agent is stored (launcher/transport/agent_script.h).
void mark_used(const fs::path& folder) {
    struct stat info {};
    if (::stat(folder.c_str(), &info) == 0 && std::time(nullptr) - info.st_mtime > kDay)
        ::utimensat(AT_FDCWD, folder.c_str(), nullptr, 0);
}

}  // namespace

Result<std::string> find_package(const std::string& agent, std::string_view digest) {
    const fs::path file = agent;
    const std::string name = file.filename();
    const bool was_copied = name.starts_with(kCopied);
    const fs::path folder =
        file.parent_path() / (was_copied ? "package-" + name.substr(kCopied.size()) : "package");
    std::error_code error;
    if (digest.empty() || (!was_copied && !fs::is_directory(folder, error)))
        return fail(Errc::not_found, "{}: not there", folder.native());
    if (!was_copied) return folder.native();
    if (fs::is_directory(folder, error)) {
        mark_used(folder);
        return folder.native();
    }
    if (auto unpacked = unpack(folder.native() + ".tar.gz", digest, folder); !unpacked)
        return std::unexpected(unpacked.error());
    return folder.native();
}

void add_to_python_path(const std::string& package, bool horovod, contracts::Environment& env) {
    std::string& path = env["PYTHONPATH"];
    path += (path.empty() ? "" : ":") + package + "/pythonpath";
    if (horovod) path = package + "/lib/dtrun/python/horovod_shim:" + path;
}

}  // namespace dtrun::agent
