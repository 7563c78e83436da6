// What a program puts into Horovod's store as the address for notices: a pickle, of which a reader of our own makes
// plain values. What comes out is a port and a key that were in it.

#include "worker/stores/notice_address.h"

#include <cstdlib>

namespace {

std::string base64(std::string_view bytes) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        std::uint32_t word = 0;
        for (std::size_t i = at; i < at + 3; ++i)
            word = word << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u);
        for (const int shift : {18, 12, 6, 0}) text += kDigits[word >> shift & 63];
    }
    const std::size_t padding = (3 - bytes.size() % 3) % 3;
    return text.replace(text.size() - padding, padding, padding, '=');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    static_cast<void>(dtrun::stores::read_notice_address(bytes));
    const auto address = dtrun::stores::read_notice_address(base64(bytes));
    if (address && (address->port == 0 || bytes.find(address->secret) == bytes.npos)) std::abort();
    return 0;
}
