#include "launcher/output/path_pattern.h"

#include "base/interfaces.h"
#include "base/text_layout.h"

namespace dtrun::output {

bool is_path_pattern(std::string_view path) {
    return path.find('%') != std::string_view::npos;
}

Result<void> check_path_pattern(std::string_view path) {
    for (std::size_t at = 0; (at = path.find('%', at)) != std::string_view::npos; at += 2) {
        const std::string_view field = path.substr(at, 2);
        if (field.size() < 2 || std::string_view("jth%").find(field[1]) == std::string_view::npos)
            return fail(Errc::invalid_input,
                        "'{}': '{}' stands for nothing; %j is the job, %t the time of its start, "
                        "%h this machine, and %% a percent sign",
                        path, field);
    }
    return {};
}

std::string expand_path_pattern(std::string_view path, const PathFacts& facts) {
    std::string expanded;
    for (std::size_t at = 0; at < path.size(); ++at) {
        if (path[at] != '%') {
            expanded += path[at];
            continue;
        }
        const char letter = path[++at];
        if (letter == 'j') expanded += facts.job;
        if (letter == 't') expanded += local_time_text(facts.time, "%Y%m%d-%H%M%S");
        if (letter == 'h') expanded += host_name();
        if (letter == '%') expanded += '%';
    }
    return expanded;
}

}  // namespace dtrun::output
