#include "collectives/backends/mpi/texts.h"

namespace dtrun::collectives {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(kBlank);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
}

}  // namespace

std::string mpi_version(std::string_view text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    constexpr std::string_view kOpen = "Open MPI v";
    if (line.starts_with(kOpen))
        return "Open MPI " + std::string(line.substr(kOpen.size(), line.find(',') - kOpen.size()));
    constexpr std::string_view kLabel = " Version:";  // "MPICH Version:   4.0.2"
    const auto label = line.find(kLabel);
    if (label == line.npos) return std::string(trimmed(line));
    return std::string(line.substr(0, label)) + " " +
           std::string(trimmed(line.substr(label + kLabel.size())));
}

std::string mpich_device(std::string_view text) {
    constexpr std::string_view kLabel = "Device:";  // "MPICH Device:    ch4:ucx"
    const auto label = text.find(kLabel);
    if (label == text.npos) return {};
    text.remove_prefix(label + kLabel.size());
    return std::string(trimmed(text.substr(0, text.find('\n'))));
}

}  // namespace dtrun::collectives
