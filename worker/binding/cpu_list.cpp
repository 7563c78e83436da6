#include "worker/binding/cpu_list.h"

#include "base/fd.h"
#include "base/strings.h"

#include <fmt/format.h>
#include <sched.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace dtrun::binding {

std::string cpu_text(const CpuList& cpus) {
    std::string text;
    for (std::size_t first = 0; first < cpus.size();) {
        std::size_t last = first;
        while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
        text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[first]);
        if (last > first) text += fmt::format("-{}", cpus[last]);
        first = last + 1;
    }
    return text;
}

Result<CpuList> parse_cpus(std::string_view text) {
    CpuList cpus;
    for (const std::string_view piece : split(text, ',')) {
        const std::string_view item = trim(piece);
        const std::size_t dash = item.find('-');
        const auto first = to_int(item.substr(0, dash), 0, kCpusMax - 1);
        const auto last =
            dash == std::string_view::npos ? first : to_int(item.substr(dash + 1), 0, kCpusMax - 1);
        if (!first || !last || *first > *last)
            return fail(Errc::invalid_input,
                        "'{}' in '{}' is neither a processor nor a range such "
                        "as 0-3",
                        escaped(item), escaped(text));
        for (auto cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<unsigned>(cpu));
    }
    std::ranges::sort(cpus);
    const auto [again, end] = std::ranges::unique(cpus);
    cpus.erase(again, end);
    return cpus;
}

CpuList common_cpus(const CpuList& a, const CpuList& b) {
    CpuList common;
    std::ranges::set_intersection(a, b, std::back_inserter(common));
    return common;
}

CpuList all_cpus(const CpuList& a, const CpuList& b) {
    CpuList all;
    std::ranges::set_union(a, b, std::back_inserter(all));
    return all;
}

Result<CpuList> own_cpus() {
    // The kernel refuses a set that is smaller than its own.
    for (std::size_t count = CPU_SETSIZE; count <= kCpusMax; count *= 2) {
        std::vector<cpu_set_t> set(count / CPU_SETSIZE);
        const std::size_t bytes = set.size() * sizeof(cpu_set_t);
        if (::sched_getaffinity(0, bytes, set.data()) != 0) {
            if (errno == EINVAL) continue;
            break;
        }
        CpuList cpus;
        for (unsigned cpu = 0; cpu < count; ++cpu)
            if (CPU_ISSET_S(cpu, bytes, set.data())) cpus.push_back(cpu);
        return cpus;
    }
    return fail(Errc::internal, "sched_getaffinity: {}", std::strerror(errno));
}

Result<CpuList> cpus_of(pid_t process) {
    constexpr std::string_view kLine = "\nCpus_allowed_list:";
    const std::string path = fmt::format("/proc/{}/status", process);
    const auto status = read_file(path);
    if (!status) return fail(Errc::not_found, "{}", status.error().message);
    const std::size_t at = status->find(kLine);
    if (at == std::string::npos) return fail(Errc::internal, "{}: no Cpus_allowed_list", path);
    const std::string_view rest = std::string_view(*status).substr(at + kLine.size());
    return parse_cpus(trim(rest.substr(0, rest.find('\n'))));
}

}  // namespace dtrun::binding
