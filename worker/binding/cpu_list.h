#pragma once

#include "base/result.h"

#include <sys/types.h>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::binding {

/// Processors (hardware threads) by the numbers that Linux gives them, ascending, each once.
using CpuList = std::vector<unsigned>;

inline constexpr unsigned kCpusMax = 65'536;

/// "0-3,8", as taskset and /proc have it; empty for none.
std::string cpu_text(const CpuList& cpus);

/// \param text  numbers and ranges between commas, in any order; at least one
/// Errc: invalid_input
Result<CpuList> parse_cpus(std::string_view text);

CpuList common_cpus(const CpuList& a, const CpuList& b);
CpuList all_cpus(const CpuList& a, const CpuList& b);

/// What this process may use. Errc: internal
Result<CpuList> own_cpus();

/// What the main thread of another process may use, from /proc. Errc: not_found (it has ended), internal
Result<CpuList> cpus_of(pid_t process);

}  // namespace dtrun::binding
