#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace dtrun::agent {

/// Takes what an archive holds, piece by piece, one file after the other.
/// \param name   of the file, relative, without ".."
/// \param at     where in it the piece belongs; 0: it is its first one, which is empty if the file is
using TakePiece =
    std::function<Result<void>(const std::string& name, std::uint64_t at, std::string_view piece)>;

/// Reads what a .tar.gz holds: plain files whose names have at most 100 bytes; folders are left out. Never more than a
/// few hundred kB of it are in memory.
/// \param bytes_max  of all of it, unpacked
/// Errc: invalid_input (damaged, too large, or with entries of another kind; pieces may have been taken before), and those
/// of `take`, which end it
Result<void> read_archive(std::string_view archive, std::size_t bytes_max, const TakePiece& take);

}  // namespace dtrun::agent
