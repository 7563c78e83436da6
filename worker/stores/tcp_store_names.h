#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::stores {

/// The rank to which a key belongs with which init_process_group's default group publishes where
/// its ranks are. With Gloo these are
///
///     torch 1.13, 2.0   default_pg/0/0/rank_R        the rank's host name
///                       default_pg/0/0/R             its addresses
///     torch 2.1 on      default_pg/0//cpu//0/rank_R, default_pg/0//cpu//0/R, or another device
///
/// before 2.6 behind "/worker/attempt_A/". Groups of new_group() have other keys, in which numbers
/// count within the group, and so has NCCL.
/// \param key  as it was on the wire
std::optional<std::uint32_t> torch_init_rank(std::string_view key);

/// A key as the program knows it, for a person; shortened where it is very long.
std::string shown_torch_key(std::string_view key);

}  // namespace dtrun::stores
