#include "lab/run/targets.h"

#include "base/fd.h"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <string>

namespace dtrun::lab {

std::vector<std::pair<std::string_view, std::string_view>> report_targets(
    const BenchCommand& command) {
    std::vector<std::pair<std::string_view, std::string_view>> targets;
    for (const auto& [flag, path] :
         {std::pair<std::string_view, std::string_view>{"--html", command.html},
          {"--markdown", command.markdown},
          {"--csv", command.csv},
          {"--json", command.json}})
        if (!path.empty()) targets.emplace_back(flag, path);
    return targets;
}

Result<void> check_report_targets(const BenchCommand& command) {
    int on_output = 0;
    for (const auto& [flag, path] : report_targets(command)) {
        if (path == "-") {
            if (++on_output > 1)
                return fail(Errc::invalid_input,
                            "{} -: another report goes to standard output already", flag);
            continue;
        }
        const Fd file(::open(std::string(path).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
        if (!file) return fail(Errc::invalid_input, "{} {}: {}", flag, path, std::strerror(errno));
    }
    return {};
}

Result<void> write_report_target(std::string_view path, std::string_view text) {
    if (path == "-") return write_all(STDOUT_FILENO, text);
    const Fd file(
        ::open(std::string(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) return fail(Errc::internal, "{}", std::strerror(errno));
    return write_all(file.get(), text);
}

}  // namespace dtrun::lab
