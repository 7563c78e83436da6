#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

/// Expands a Slurm node list such as "gpu[01-03,7],login1" or "rack[1-2]n[01-10]", in listed order
/// and with repetitions, zero padding kept (the width of the low bound), text after a bracket
/// allowed ("x[1-2]-ib"). Several brackets vary as with `scontrol show hostnames`: the last one
/// fastest, after it the first, the second and so on. Empty items and blanks separate.
/// \param text  neither kept nor modified
/// \param what  what messages call the list
/// \return 1..kHostsMax names, or invalid_input with a message that starts "<what>:1:<column>:"
Result<std::vector<std::string>> expand_nodelist(std::string_view text,
                                                 std::string_view what = "nodelist");

/// The way back: the shortest list in Slurm's notation that keeps order, repetitions and padding, so
/// that expand_nodelist() and `scontrol show hostnames` give `names` again. Neighbours that differ
/// only in the number at their end share a bracket: "n[01-16,20],login1". Names with text behind the
/// number stand alone, since scontrol reads none behind a bracket.
/// Time: linear in the bytes of `names`.
/// \param names  as expand_nodelist() gives them; no IPv6 addresses
/// \return "" for no names
std::string compress_nodelist(std::span<const std::string> names);

/// So many hosts are named one by one.
inline constexpr std::size_t kFewHosts = 4;

/// All of `names` for a person to read: "s1, s2 and s3", or of many "n[01-20].cluster,login (21)".
std::string name_hosts(const std::vector<std::string>& names);

}  // namespace dtrun
