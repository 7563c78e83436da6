#include "lab/run/targets.h"

#include "base/fd.h"
#include "lab/report/html.h"
#include "lab/report/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::lab {
namespace {

/// Reports that are asked for, with where they go: {"--html", "r.html"}. "-" is standard output.
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

Result<void> write_markdown_files(const LabReport& report, std::string_view path) {
    if (path == "-") return write_report_target(path, write_markdown(report).text);
    const std::string_view stem = path.substr(0, path.size() - (path.ends_with(".md") ? 3 : 0));
    const MarkdownReport made = write_markdown(report, stem.substr(stem.rfind('/') + 1));
    auto done = write_report_target(path, made.text);
    for (std::size_t i = 0; done && i < made.pictures.size(); ++i)
        done = write_report_target(fmt::format("{}-{}.svg", stem, i + 1), made.pictures[i]);
    return done;
}

}  // namespace

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

int screen_of(const BenchCommand& command) {
    const auto targets = report_targets(command);
    return std::ranges::any_of(targets, [](const auto& target) { return target.second == "-"; })
               ? STDERR_FILENO
               : STDOUT_FILENO;
}

Language language_of(const BenchCommand& command) {
    return command.chinese ? Language::chinese : Language::english;
}

LabReport as_wished(LabReport report, const BenchCommand& command) {
    report.language = language_of(command);
    if (!command.title.empty()) report.title = command.title;
    if (command.line_rate_mbit > 0) report.line_rate_mbit = command.line_rate_mbit;
    if (command.target_accuracy > 0) report.target_accuracy = command.target_accuracy;
    return report;
}

Result<void> write_reports(const LabReport& report, const BenchCommand& command) {
    Result<void> all;
    for (const auto& [flag, path] : report_targets(command)) {
        const auto done = flag == "--html"       ? write_report_target(path, write_html(report))
                          : flag == "--markdown" ? write_markdown_files(report, path)
                          : flag == "--csv"      ? write_report_target(path, write_csv(report))
                                                 : write_report_target(path, write_json(report));
        if (!done && all) all = fail(done.error(), "{} {}", flag, path);
    }
    return all;
}

Result<void> write_report_target(std::string_view path, std::string_view text) {
    if (path == "-") return write_all(STDOUT_FILENO, text);
    const Fd file(
        ::open(std::string(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) return fail(Errc::internal, "{}", std::strerror(errno));
    return write_all(file.get(), text);
}

}  // namespace dtrun::lab
