#include "launcher/output/rotation.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace dtrun::output {
namespace {

std::string name_of(const std::string& path, int number) {
    return number == 0 ? path : fmt::format("{}.{}", path, number);
}

}  // namespace

std::size_t part_that_fits(std::string_view bytes, const Fill& file, std::uint64_t bytes_max) {
    constexpr std::uint64_t kLineMax = 1u << 20;
    const std::uint64_t room = bytes_max - std::min(file.bytes, bytes_max);
    if (bytes.size() <= room) return bytes.size();
    const auto most = static_cast<std::size_t>(room);
    const std::size_t end = bytes.substr(0, most).rfind('\n');
    if (end != std::string_view::npos) return end + 1;
    if (!file.in_line && file.bytes > 0) return 0;
    if (!file.in_line) return std::max<std::size_t>(most, 1);
    const std::size_t next_end = bytes.find('\n');
    const std::uint64_t rest = next_end == std::string_view::npos ? bytes.size() : next_end + 1;
    const std::uint64_t limit = bytes_max + kLineMax;
    return static_cast<std::size_t>(std::min(rest, limit - std::min(file.bytes, limit)));
}

Result<void> set_aside(int folder, const std::string& path, int keep) {
    if (keep == 0 && ::unlinkat(folder, path.c_str(), 0) != 0)
        return fail(Errc::internal, "{}: {}", path, std::strerror(errno));
    for (int number = keep; number > 0; --number) {
        const std::string from = name_of(path, number - 1);
        const std::string to = name_of(path, number);
        if (::renameat(folder, from.c_str(), folder, to.c_str()) != 0 && errno != ENOENT)
            return fail(Errc::internal, "{}: {}", from, std::strerror(errno));
    }
    return {};
}

void remove_set_aside(int folder, const std::string& path) {
    for (int number = 1; ::unlinkat(folder, name_of(path, number).c_str(), 0) == 0; ++number) {
    }
}

}  // namespace dtrun::output
