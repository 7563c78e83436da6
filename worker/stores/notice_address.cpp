#include "worker/stores/notice_address.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

namespace dtrun::stores {
namespace {

constexpr std::size_t kBytesMax = 64u << 10;
constexpr std::size_t kDepthMax = 8;
constexpr std::size_t kMemoMax = 4'096;
constexpr std::size_t kMemoryMax =
    1u << 20;  // of all values that are ever made, copies through the memo included

std::optional<std::string> decode_base64(std::string_view text) {
    while (text.ends_with('\n')) text.remove_suffix(1);
    if (text.size() % 4 != 0 || text.size() > kBytesMax) return std::nullopt;
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    for (std::size_t at = 0; at < text.size(); at += 4) {
        std::uint32_t word = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            const bool padded = at + i >= text.size() - padding;
            const std::size_t digit = padded ? 0 : kDigits.find(text[at + i]);
            if (digit == std::string_view::npos) return std::nullopt;
            word = word << 6 | static_cast<std::uint32_t>(digit);
        }
        for (const int shift : {16, 8, 0}) bytes += static_cast<char>(word >> shift & 0xff);
    }
    bytes.resize(bytes.size() - (text.empty() ? 0 : padding));
    return bytes;
}

struct Value {
    enum class Kind : std::uint8_t { mark, number, text, bytes, items } kind{};
    std::int64_t number = 0;
    std::string text{};
    std::vector<Value> items{};  ///< of a list, a tuple, or a dictionary: key, value, key, value

    std::size_t depth() const {
        std::size_t deepest = 0;
        for (const Value& item : items) deepest = std::max(deepest, item.depth());
        return deepest + 1;
    }
    std::size_t bytes() const {
        std::size_t all = sizeof *this + text.size();
        for (const Value& item : items) all += item.bytes();
        return all;
    }
};

/// Runs a pickle that makes plain values.
class PickleReader {
public:
    explicit PickleReader(std::string_view bytes) : rest_(bytes) {}

    std::optional<Value> read() {
        while (!rest_.empty() && ok_) {
            const auto opcode = static_cast<unsigned char>(take(1)[0]);
            if (opcode == '.') return result();
            ok_ = step(opcode) && ok_;
        }
        return std::nullopt;
    }

private:
    using Kind = Value::Kind;

    std::optional<Value> result() {
        if (stack_.size() != 1 || stack_[0].kind == Kind::mark) return std::nullopt;
        return std::move(stack_[0]);
    }

    std::string_view take(std::uint64_t bytes) {
        if (bytes > rest_.size()) {
            ok_ = false;
            rest_ = {};
            static constexpr std::array<char, 8> kNothing{};
            return {kNothing.data(), std::min<std::size_t>(bytes, kNothing.size())};
        }
        const std::string_view taken = rest_.substr(0, bytes);
        rest_.remove_prefix(bytes);
        return taken;
    }
    std::uint64_t integer(std::size_t bytes) {
        const std::string_view digits = take(bytes);
        std::uint64_t value = 0;
        for (std::size_t i = bytes; i-- > 0;)
            value = value << 8 | static_cast<unsigned char>(digits[i]);
        return value;
    }
    /// Before a value is made, or copied.
    bool has_room_for(std::size_t bytes) {
        made_ += bytes;
        return made_ <= kMemoryMax;
    }
    bool push(Value value) {
        if (value.depth() > kDepthMax || !has_room_for(sizeof value)) return false;
        stack_.push_back(std::move(value));
        return true;
    }
    bool push_number(std::int64_t number) { return push({Kind::number, number}); }
    bool push_text(Kind kind, std::size_t length_bytes) {
        const std::uint64_t length = integer(length_bytes);
        if (length > rest_.size() || !has_room_for(length)) return false;
        return push({kind, 0, std::string(take(length))});
    }
    /// Makes one value of the last ones.
    bool gather(std::size_t count) {
        if (count > stack_.size()) return false;
        Value tuple{Kind::items};
        const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
        tuple.items.assign(std::make_move_iterator(first), std::make_move_iterator(stack_.end()));
        stack_.erase(first, stack_.end());
        return push(std::move(tuple));
    }
    /// The number of values behind the last mark, which is removed.
    std::optional<std::size_t> behind_mark() {
        for (std::size_t i = stack_.size(); i-- > 0;)
            if (stack_[i].kind == Kind::mark) {
                stack_.erase(stack_.begin() + static_cast<std::ptrdiff_t>(i));
                return stack_.size() - i;
            }
        return std::nullopt;
    }
    /// Moves the last values into the list or dictionary before them.
    bool append(std::optional<std::size_t> count) {
        if (!count || *count >= stack_.size()) return false;
        const auto first = stack_.end() - static_cast<std::ptrdiff_t>(*count);
        Value& list = *(first - 1);
        if (list.kind != Kind::items) return false;
        const auto too_deep = [](const Value& item) { return item.depth() >= kDepthMax; };
        if (std::any_of(first, stack_.end(), too_deep)) return false;
        std::move(first, stack_.end(), std::back_inserter(list.items));
        stack_.erase(first, stack_.end());
        return true;
    }
    bool remember(std::size_t index) {
        if (stack_.empty() || index > kMemoMax || !has_room_for(stack_.back().bytes()))
            return false;
        if (memo_.size() <= index) memo_.resize(index + 1);
        memo_[index] = stack_.back();
        return true;
    }
    bool recall(std::size_t index) {
        return index < memo_.size() && memo_[index] && has_room_for(memo_[index]->bytes()) &&
               push(*memo_[index]);
    }
    bool step(unsigned char opcode) {
        switch (opcode) {
            case 0x80:  // PROTO
                return integer(1) <= 5;
            case 0x95:  // FRAME
                integer(8);
                return true;
            case '(':
                return push({Kind::mark});
            case '}':
            case ']':
            case ')':
                return push({Kind::items});
            case 0x94:  // MEMOIZE
                return remember(memo_.size());
            case 'q':
                return remember(integer(1));
            case 'r':
                return remember(integer(4));
            case 'h':
                return recall(integer(1));
            case 'j':
                return recall(integer(4));
            case 0x8c:
                return push_text(Kind::text, 1);
            case 'X':
                return push_text(Kind::text, 4);
            case 0x8d:
                return push_text(Kind::text, 8);
            case 'C':
                return push_text(Kind::bytes, 1);
            case 'B':
                return push_text(Kind::bytes, 4);
            case 'K':
                return push_number(static_cast<std::int64_t>(integer(1)));
            case 'M':
                return push_number(static_cast<std::int64_t>(integer(2)));
            case 'J':
                return push_number(static_cast<std::int32_t>(integer(4)));
            case 0x85:
            case 0x86:
            case 0x87:
                return gather(opcode - 0x84u);
            case 't': {
                const auto count = behind_mark();
                return count && gather(*count);
            }
            case 'a':
                return append(1);
            case 's':
                return append(2);
            case 'e':
            case 'u':
                return append(behind_mark());
            default:
                return false;
        }
    }

    std::string_view rest_;
    std::vector<Value> stack_;
    std::vector<std::optional<Value>> memo_;
    std::size_t made_ = 0;  ///< bytes of all values so far
    bool ok_ = true;
};

/// The port of the first address.
std::optional<std::uint16_t> first_port(const Value& interfaces) {
    for (std::size_t i = 1; i < interfaces.items.size(); i += 2)
        for (const Value& address : interfaces.items[i].items) {
            if (address.items.size() != 2 || address.items[1].kind != Value::Kind::number) continue;
            const std::int64_t port = address.items[1].number;
            if (port > 0 && port <= UINT16_MAX) return static_cast<std::uint16_t>(port);
        }
    return std::nullopt;
}

}  // namespace

Result<NoticeAddress> read_notice_address(std::string_view base64) {
    const auto bytes = decode_base64(base64);
    if (!bytes) return fail(Errc::invalid_input, "no base64, or too long");
    const auto value = PickleReader(*bytes).read();
    if (!value || value->items.size() != 2 || value->items[1].kind != Value::Kind::bytes)
        return fail(Errc::invalid_input, "not the pickle of addresses and a secret");
    const auto port = first_port(value->items[0]);
    if (!port) return fail(Errc::invalid_input, "no address in it");
    return NoticeAddress{*port, value->items[1].text};
}

}  // namespace dtrun::stores
