#include "rendezvous/wire/msgpack.h"

#include <limits>

namespace dtrun {

template <class T>
void PackWriter::big_endian(std::uint8_t tag, T value) {
    head(tag);
    for (int shift = static_cast<int>(sizeof(T)) * 8 - 8; shift >= 0; shift -= 8)
        head(static_cast<std::uint8_t>(value >> shift));
}

void PackWriter::map(std::uint32_t entries) {
    if (entries < 16)
        head(static_cast<std::uint8_t>(0x80 | entries));
    else if (entries <= 0xffff)
        big_endian(0xde, static_cast<std::uint16_t>(entries));
    else
        big_endian(0xdf, entries);
}

void PackWriter::array(std::uint32_t items) {
    if (items < 16)
        head(static_cast<std::uint8_t>(0x90 | items));
    else if (items <= 0xffff)
        big_endian(0xdc, static_cast<std::uint16_t>(items));
    else
        big_endian(0xdd, items);
}

void PackWriter::uint(std::uint64_t value) {
    if (value < 0x80)
        head(static_cast<std::uint8_t>(value));
    else if (value <= 0xff)
        big_endian(0xcc, static_cast<std::uint8_t>(value));
    else if (value <= 0xffff)
        big_endian(0xcd, static_cast<std::uint16_t>(value));
    else if (value <= 0xffffffff)
        big_endian(0xce, static_cast<std::uint32_t>(value));
    else
        big_endian(0xcf, value);
}

void PackWriter::integer(std::int64_t value) {
    if (value >= 0) return uint(static_cast<std::uint64_t>(value));
    if (value >= -32)
        head(static_cast<std::uint8_t>(value));
    else if (value >= std::numeric_limits<std::int8_t>::min())
        big_endian(0xd0, static_cast<std::uint8_t>(value));
    else if (value >= std::numeric_limits<std::int16_t>::min())
        big_endian(0xd1, static_cast<std::uint16_t>(value));
    else if (value >= std::numeric_limits<std::int32_t>::min())
        big_endian(0xd2, static_cast<std::uint32_t>(value));
    else
        big_endian(0xd3, static_cast<std::uint64_t>(value));
}

void PackWriter::str(std::string_view text) {
    const std::size_t size = text.size();
    if (size < 32)
        head(static_cast<std::uint8_t>(0xa0 | size));
    else if (size <= 0xff)
        big_endian(0xd9, static_cast<std::uint8_t>(size));
    else if (size <= 0xffff)
        big_endian(0xda, static_cast<std::uint16_t>(size));
    else
        big_endian(0xdb, static_cast<std::uint32_t>(size));
    out_ += text;
}

void PackWriter::bin(std::string_view bytes) {
    const std::size_t size = bytes.size();
    if (size <= 0xff)
        big_endian(0xc4, static_cast<std::uint8_t>(size));
    else if (size <= 0xffff)
        big_endian(0xc5, static_cast<std::uint16_t>(size));
    else
        big_endian(0xc6, static_cast<std::uint32_t>(size));
    out_ += bytes;
}

void PackWriter::bin(std::span<const std::uint8_t> bytes) {
    bin(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::uint8_t PackReader::byte() {
    if (in_.empty()) {
        set_failed();
        return 0xc1;  // the one byte that MessagePack never uses
    }
    const auto value = static_cast<std::uint8_t>(in_.front());
    in_.remove_prefix(1);
    return value;
}

std::uint64_t PackReader::big_endian(int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | byte();
    return ok_ ? value : 0;
}

std::string_view PackReader::take(std::uint64_t bytes) {
    if (bytes > in_.size()) {
        set_failed();
        return {};
    }
    const std::string_view taken = in_.substr(0, bytes);
    in_.remove_prefix(bytes);
    return taken;
}

std::uint32_t PackReader::count(std::uint64_t items, unsigned bytes_each) {
    if (items > in_.size() / bytes_each) {
        set_failed();
        return 0;
    }
    return static_cast<std::uint32_t>(items);
}

std::uint32_t PackReader::map() {
    const std::uint8_t tag = byte();
    if ((tag & 0xf0) == 0x80) return count(tag & 0x0f, 2);
    if (tag == 0xde) return count(big_endian(2), 2);
    if (tag == 0xdf) return count(big_endian(4), 2);
    set_failed();
    return 0;
}

std::uint32_t PackReader::array() {
    const std::uint8_t tag = byte();
    if ((tag & 0xf0) == 0x90) return count(tag & 0x0f, 1);
    if (tag == 0xdc) return count(big_endian(2), 1);
    if (tag == 0xdd) return count(big_endian(4), 1);
    set_failed();
    return 0;
}

std::uint64_t PackReader::uint() {
    const std::uint8_t tag = byte();
    if (tag < 0x80) return tag;
    if (tag >= 0xcc && tag <= 0xcf) return big_endian(1 << (tag - 0xcc));
    set_failed();
    return 0;
}

std::int64_t PackReader::integer() {
    if (in_.empty()) {
        set_failed();
        return 0;
    }
    const auto tag = static_cast<std::uint8_t>(in_.front());
    if (tag >= 0xe0) return static_cast<std::int8_t>(byte());
    if (tag < 0xd0 || tag > 0xd3) {
        const std::uint64_t value = uint();
        if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            return static_cast<std::int64_t>(value);
        set_failed();
        return 0;
    }
    byte();
    switch (tag) {
        case 0xd0:
            return static_cast<std::int8_t>(big_endian(1));
        case 0xd1:
            return static_cast<std::int16_t>(big_endian(2));
        case 0xd2:
            return static_cast<std::int32_t>(big_endian(4));
        default:
            return static_cast<std::int64_t>(big_endian(8));
    }
}

bool PackReader::boolean() {
    const std::uint8_t tag = byte();
    if (tag != 0xc2 && tag != 0xc3) set_failed();
    return tag == 0xc3;
}

std::string_view PackReader::str() {
    const std::uint8_t tag = byte();
    if ((tag & 0xe0) == 0xa0) return take(tag & 0x1f);
    if (tag >= 0xd9 && tag <= 0xdb) return take(big_endian(1 << (tag - 0xd9)));
    set_failed();
    return {};
}

std::string_view PackReader::bin() {
    const std::uint8_t tag = byte();
    if (tag >= 0xc4 && tag <= 0xc6) return take(big_endian(1 << (tag - 0xc4)));
    set_failed();
    return {};
}

std::string_view PackReader::bytes() {
    const auto tag = static_cast<std::uint8_t>(in_.empty() ? 0xc1 : in_.front());
    return tag >= 0xc4 && tag <= 0xc6 ? bin() : str();
}

bool PackReader::nil() {
    if (in_.empty() || static_cast<std::uint8_t>(in_.front()) != 0xc0) return false;
    in_.remove_prefix(1);
    return true;
}

void PackReader::skip() {
    skip(0);
}

void PackReader::skip(int depth) {
    if (in_.empty() || depth > kDepthMax) return set_failed();
    const auto tag = static_cast<std::uint8_t>(in_.front());
    const bool is_map = (tag & 0xf0) == 0x80 || tag == 0xde || tag == 0xdf;
    const bool is_array = (tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd;
    if (is_map || is_array) {
        const std::uint64_t items = is_map ? 2ull * map() : array();
        for (std::uint64_t i = 0; ok_ && i < items; ++i) skip(depth + 1);
        return;
    }
    byte();
    if (tag < 0x80 || tag >= 0xe0 || tag == 0xc0 || tag == 0xc2 || tag == 0xc3) return;
    if ((tag & 0xe0) == 0xa0)
        take(tag & 0x1f);  // fixstr
    else if (tag >= 0xc4 && tag <= 0xc6)
        take(big_endian(1 << (tag - 0xc4)));  // bin
    else if (tag >= 0xc7 && tag <= 0xc9)
        take(big_endian(1 << (tag - 0xc7)) + 1);  // ext
    else if (tag == 0xca)
        take(4);  // float
    else if (tag == 0xcb)
        take(8);
    else if (tag >= 0xcc && tag <= 0xcf)
        take(1ull << (tag - 0xcc));  // uint
    else if (tag >= 0xd0 && tag <= 0xd3)
        take(1ull << (tag - 0xd0));  // int
    else if (tag >= 0xd4 && tag <= 0xd8)
        take((1ull << (tag - 0xd4)) + 1);  // fixext
    else if (tag >= 0xd9 && tag <= 0xdb)
        take(big_endian(1 << (tag - 0xd9)));  // str
    else
        set_failed();  // 0xc1
}

}  // namespace dtrun
