#pragma once

#include "base/result.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dtrun {

using Bytes = std::string;  ///< owned bytes; a std::string because every API takes one

/// Appends MessagePack values (https://msgpack.org, spec of 2013-08) to a buffer, each in its
/// shortest form.
class PackWriter {
public:
    explicit PackWriter(Bytes& out) : out_(out) {}

    void map(std::uint32_t entries);
    void array(std::uint32_t items);
    void uint(std::uint64_t value);
    void integer(std::int64_t value);
    void boolean(bool value) { out_ += static_cast<char>(value ? 0xc3 : 0xc2); }
    void nil() { out_ += static_cast<char>(0xc0); }
    void str(std::string_view text);
    void bin(std::string_view bytes);
    void bin(std::span<const std::uint8_t> bytes);

private:
    void head(std::uint8_t byte) { out_ += static_cast<char>(byte); }
    template <class T>
    void big_endian(std::uint8_t tag, T value);

    Bytes& out_;
};

/// Reads MessagePack values one after the other, without allocation: text and bytes are views into
/// the input. The first mistake (wrong type, out of range, truncated, too deep) makes the reader
/// fail: from then on every call returns zero or empty, and ok() is false.
class PackReader {
public:
    explicit PackReader(std::string_view in) : in_(in) {}

    /// Number of entries, never more than could fit into the bytes that are left.
    std::uint32_t map();
    std::uint32_t array();  ///< as map()
    std::uint64_t uint();
    std::int64_t integer();
    bool boolean();
    std::string_view str();
    std::string_view bin();
    std::string_view bytes();  ///< either of str and bin
    bool nil();                ///< whether the next value is nil; takes it only then
    void skip();  ///< any one value, with everything inside it; at most kDepthMax levels

    bool ok() const { return ok_; }
    bool at_end() const { return ok_ && in_.empty(); }
    void set_failed() {
        ok_ = false;
        in_ = {};
    }

    static constexpr int kDepthMax = 16;

private:
    std::uint8_t byte();
    std::uint64_t big_endian(int bytes);
    std::string_view take(std::uint64_t bytes);
    std::uint32_t count(std::uint64_t items, unsigned bytes_each);
    void skip(int depth);

    std::string_view in_;
    bool ok_ = true;
};

}  // namespace dtrun
