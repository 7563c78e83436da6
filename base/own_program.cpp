#include "base/own_program.h"

#include <filesystem>
#include <string_view>

namespace dtrun {

Result<std::string> own_program() {
    std::error_code error;
    std::string file = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error)
        return fail(Errc::internal, "/proc/self/exe: {} (is /proc mounted?)", error.message());
    constexpr std::string_view kDeleted =
        " (deleted)";  // the kernel's word for a file without a name
    if (file.ends_with(kDeleted) && !std::filesystem::exists(file, error)) {
        const std::string named = file.substr(0, file.size() - kDeleted.size());
        if (std::filesystem::exists(named, error)) return named;
    }
    return file;
}

}  // namespace dtrun
