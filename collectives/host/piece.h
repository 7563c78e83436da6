#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrun::collectives {

/// The piece of an array that one of several ranks adds up.
struct Piece {
    std::size_t begin, count;

    Piece(std::size_t total, std::uint32_t ranks, std::uint32_t rank)
        : begin(total * rank / ranks), count(total * (rank + 1) / ranks - begin) {}
};

}  // namespace dtrun::collectives
