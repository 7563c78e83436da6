#include "base/own_program.h"

#include <unistd.h>
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

Result<std::string> program_beside(const std::string& name) {
    const auto own = own_program();
    if (!own) return own;
    const std::filesystem::path folder = std::filesystem::path(*own).parent_path();
    const auto beside = folder / name;
    const auto installed = folder.parent_path() / "libexec/dtrun" / name;
    for (const auto& path : {beside, installed})
        if (::access(path.c_str(), X_OK) == 0) return path.native();
    return fail(Errc::not_found, "no {} at {} or {}", name, beside.native(), installed.native());
}

}  // namespace dtrun
