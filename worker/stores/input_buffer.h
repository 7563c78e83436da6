#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace dtrun::stores {

/// Bytes that a connection has brought and that are not used yet. The memory grows with what has
/// come, not with what is announced, and shrinks when a large request is over.
///
/// Thread: one. Lifetime: unused() is valid until room().
class InputBuffer {
public:
    /// Where the next bytes belong, 1 KiB or more. Not to be called again before received().
    std::span<char> room();
    /// \param bytes  so many, at the beginning of room()
    void received(std::size_t bytes) { end_ += bytes; }

    std::string_view unused() const { return {memory_.get() + begin_, end_ - begin_}; }
    /// \param bytes  so many, at the beginning of unused()
    void use(std::size_t bytes) { begin_ += bytes; }

private:
    std::unique_ptr<char[]> memory_;
    std::size_t size_ = 0;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;  ///< [begin_, end_) is not used
};

}  // namespace dtrun::stores
