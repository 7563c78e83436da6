#include "worker/stores/tcp_store_input.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>

namespace dtrun::stores {
namespace {

static_assert(std::endian::native == std::endian::little, "torch sends what lies in memory");

constexpr std::string_view kMagic("\xce\xf7\x85\x3c", 4);

/// What an operation is made of: k a key, v a value, i an int64, n PING's nonce, * a count of what
/// follows, ? whatever legacy's operation 8 may still have.
struct Shape {
    TorchOp op{};
    const char* parts = nullptr;
};

constexpr std::array kModern{
    Shape{TorchOp::validate, nullptr},  // only at the beginning
    Shape{TorchOp::set, "kv"},         Shape{TorchOp::compare_set, "kvv"},
    Shape{TorchOp::get, "k"},          Shape{TorchOp::add, "ki"},
    Shape{TorchOp::check, "*k"},       Shape{TorchOp::wait, "*k"},
    Shape{TorchOp::count, ""},         Shape{TorchOp::erase, "k"},
    Shape{TorchOp::append, "kv"},      Shape{TorchOp::multi_get, "*k"},
    Shape{TorchOp::multi_set, "*kv"},  Shape{TorchOp::cancel_wait, ""},
    Shape{TorchOp::ping, "n"},         Shape{TorchOp::push, "kv"},
    Shape{TorchOp::pop, "k"},          Shape{TorchOp::length, "k"},
    Shape{TorchOp::list, ""},          Shape{TorchOp::barrier, "ki"},
};
constexpr std::uint8_t kErase = 8, kCancelWait = 12;

constexpr std::uint8_t kLegacyWatchOrErase = 7, kLegacyEraseOrAppend = 8, kLegacyBEnd = 12;

template <class T>
std::optional<T> number_at(std::string_view bytes, std::size_t at) {
    if (bytes.size() < at + sizeof(T)) return {};
    T number{};
    std::memcpy(&number, bytes.data() + at, sizeof number);
    return number;
}

}  // namespace

void TcpStoreInput::received(std::size_t bytes) {
    buffer_.received(bytes);
    has_spoken_ |= bytes > 0;
}

std::string_view TcpStoreInput::field(std::size_t index) const {
    const TorchRequest::Field& at = request_.fields[index];
    return buffer_.unused().substr(at.at, at.bytes);
}

Result<bool> TcpStoreInput::find() {
    if (request_bytes_ > 0) return true;
    const std::string_view bytes = buffer_.unused();
    undecided_ = false;
    if (bytes.empty()) return false;
    if (shape_ == nullptr) {
        const auto begun = begin(bytes);
        if (!begun || !*begun) return begun;
    }
    for (;;) {
        if (*shape_ == '\0' && left_ > 1) {
            --left_;
            shape_ = repeat_;
        }
        if (*shape_ == '\0') break;
        const auto stepped = step(bytes);
        if (!stepped || !*stepped) return stepped;
    }
    request_bytes_ = at_;
    shape_ = nullptr;
    left_ = 0;
    ++requests_;
    return true;
}

/// \return whether the operation is known now, so that shape_ is set
Result<bool> TcpStoreInput::begin(std::string_view bytes) {
    request_.fields.clear();
    weight_ = 0;
    at_ = 0;
    if (pairs_left_ > 0) {  // the next piece of a MULTI_SET
        left_ = std::exchange(pairs_left_, 0);
        shape_ = repeat_;
        return true;
    }
    if (dialect_ == TorchDialect::unknown) {
        const auto detected = detect(bytes);
        if (!detected || !*detected) return detected;
    }
    // VALIDATE, the first time, stands before an operation like the magic number.
    if (dialect_ == TorchDialect::modern && requests_ == 0) at_ = 1 + kMagic.size();
    if (dialect_ == TorchDialect::magic) {
        const std::size_t there = std::min(bytes.size(), kMagic.size());
        if (bytes.substr(0, there) != kMagic.substr(0, there))
            return fail(Errc::invalid_input, "an operation without the number that stands before");
        at_ = kMagic.size();
    }
    if (bytes.size() <= at_) return false;
    const auto number = static_cast<std::uint8_t>(bytes[at_]);
    if (const auto chosen = choose(number); !chosen) return std::unexpected(chosen.error());
    ++at_;
    return true;
}

/// Finds the dialect by the first bytes. A legacy SET begins with 0 and a length below 2^32;
/// VALIDATE's number, read as such a length, would be a gigabyte.
Result<bool> TcpStoreInput::detect(std::string_view bytes) {
    if (bytes.empty()) return false;
    const auto is = [bytes](std::string_view wanted) {
        return wanted.starts_with(bytes.substr(0, wanted.size()));
    };
    static constexpr std::string_view kValidate("\0\xce\xf7\x85\x3c", 5);
    if (is(kValidate)) {
        if (bytes.size() < kValidate.size()) return false;
        dialect_ = TorchDialect::modern;
    } else if (is(kMagic)) {
        if (bytes.size() < kMagic.size()) return false;
        dialect_ = TorchDialect::magic;
    } else if (static_cast<std::uint8_t>(bytes.front()) < kLegacyBEnd) {
        dialect_ = TorchDialect::legacy;
    } else {
        return fail(Errc::invalid_input, "no client of torch's store");
    }
    return true;
}

/// In legacy_a 7 is WATCH_KEY and 8 DELETE_KEY; in legacy_b 7 is DELETE_KEY, 8 APPEND and the rest
/// follows. Clients of legacy_a send WATCH_KEY on a connection that is for nothing else, and
/// nothing else on that one: so a 7 is WATCH_KEY unless something else has come before it. A
/// connection's dialect stays what it was found to be.
Result<void> TcpStoreInput::choose(std::uint8_t number) {
    const auto take = [this](const Shape& shape) {
        request_.op = shape.op;
        shape_ = shape.parts;
        return Result<void>{};
    };
    if (dialect_ == TorchDialect::modern) {
        if (number == 0 || number >= kModern.size())
            return fail(Errc::invalid_input, "unknown operation {}", number);
        return take(kModern[number]);
    }
    if (number >= kLegacyBEnd) return fail(Errc::invalid_input, "unknown operation {}", number);
    if (number < kLegacyWatchOrErase) return take(kModern[number + 1u]);
    if (dialect_ == TorchDialect::legacy) {
        if (number > kLegacyEraseOrAppend)
            dialect_ = TorchDialect::legacy_b;
        else if (number == kLegacyWatchOrErase)
            dialect_ = requests_ == 0 ? TorchDialect::legacy_a : TorchDialect::legacy_b;
        else
            return take({TorchOp::erase, "k?"});
    }
    if (dialect_ != TorchDialect::legacy_a) {
        static_assert(kErase == kLegacyWatchOrErase + 1 && kCancelWait == kLegacyBEnd);
        return take(kModern[number + 1u]);
    }
    if (number == kLegacyWatchOrErase) return take({TorchOp::watch, "k"});
    if (number == kLegacyEraseOrAppend) return take(kModern[kErase]);
    return fail(Errc::invalid_input, "unknown operation {}", number);
}

/// \return whether there were bytes enough for what shape_ points at, which is then the next
Result<bool> TcpStoreInput::step(std::string_view bytes) {
    switch (*shape_) {
        case '*':
            return take_count(bytes);
        case 'i': {
            const auto number = number_at<std::int64_t>(bytes, at_);
            if (!number) return false;
            request_.number = *number;
            at_ += sizeof *number;
            break;
        }
        case 'n': {
            const auto nonce = number_at<std::uint32_t>(bytes, at_);
            if (!nonce) return false;
            request_.nonce = *nonce;
            at_ += sizeof *nonce;
            break;
        }
        case '?':
            return take_rest(bytes);
        default:
            return take_field(bytes);
    }
    ++shape_;
    return true;
}

Result<bool> TcpStoreInput::take_count(std::string_view bytes) {
    const auto count = number_at<std::uint64_t>(bytes, at_);
    if (!count) return false;
    if (*count > kKeysMax)
        return fail(Errc::invalid_input, "a request with {} keys, more than {}", *count, kKeysMax);
    at_ += sizeof *count;
    repeat_ = ++shape_;
    left_ = *count;
    if (left_ == 0) shape_ = "";
    return true;
}

Result<bool> TcpStoreInput::take_field(std::string_view bytes) {
    const auto length = number_at<std::uint64_t>(bytes, at_);
    if (!length) return false;
    const bool key = *shape_ == 'k';
    const std::size_t most = key ? kKeyBytesMax : kValueBytesMax;
    if (*length > most)
        return fail(Errc::invalid_input, "a {} of {} bytes, more than {}", key ? "key" : "value",
                    *length, most);
    const std::size_t weight = weight_ + *length + kFieldBytes;
    if (request_.op == TorchOp::multi_set && weight > kPieceBytes && end_piece()) return true;
    if (weight > kRequestBytesMax)
        return fail(Errc::invalid_input, "a request of more than {} bytes", kRequestBytesMax);
    if (bytes.size() - at_ - sizeof *length < *length) return false;
    at_ += sizeof *length;
    request_.fields.push_back({at_, *length});
    at_ += *length;
    weight_ = weight;
    ++shape_;
    return true;
}

/// The pairs before the one that is being taken become a request.
/// \return false if there are none
bool TcpStoreInput::end_piece() {
    if (request_.fields.size() < 2) return false;
    if (request_.fields.size() % 2 == 1) request_.fields.pop_back();
    const TorchRequest::Field& last = request_.fields.back();
    at_ = last.at + last.bytes;
    pairs_left_ = left_;
    left_ = 0;
    shape_ = "";
    return true;
}

/// Legacy's operation 8 and its key are there. In legacy_a that is DELETE_KEY, whose client waits
/// for the answer before it sends more; in legacy_b it is APPEND, and the value follows, as a rule
/// in the same write. Where nothing follows, the idle connection that each client of legacy_a has
/// decides.
Result<bool> TcpStoreInput::take_rest(std::string_view bytes) {
    if (bytes.size() > at_) {
        dialect_ = TorchDialect::legacy_b;
        request_.op = TorchOp::append;
        shape_ = "v";
        return true;
    }
    undecided_ = !has_idle_sibling_ || !has_idle_sibling_();
    if (undecided_) return false;
    dialect_ = TorchDialect::legacy_a;
    shape_ = "";
    return true;
}

}  // namespace dtrun::stores
