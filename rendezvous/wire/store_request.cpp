#include "rendezvous/wire/store_request.h"

#include <algorithm>
#include <initializer_list>
#include <span>

namespace dtrun {
namespace {

/// The names in operations.def.
enum class Argument : std::uint8_t {
    key,  ///< or the prefix of keys
    keys,
    pairs,  ///< key, value, key, value, … in one array
    value,
    expected,
    delta,
    after,
    number,  ///< a limit, a revision or the id of a request
    timeout,
};

/// The arguments of an operation after the generation, in their order on the wire.
/// \return nothing for an unknown operation
std::optional<std::span<const Argument>> arguments_of(Op op) {
    using enum Argument;
    switch (op) {
#define DTRUN_UNPACKED(...) __VA_ARGS__
#define DTRUN_OPERATION(name, number, function, effect, arguments)                             \
    case Op::name: {                                                                           \
        static constexpr std::initializer_list<Argument> kArguments{DTRUN_UNPACKED arguments}; \
        return std::span(kArguments.begin(), kArguments.size());                               \
    }
#include "rendezvous/wire/operations.def"
#undef DTRUN_UNPACKED
    }
    return std::nullopt;
}

void read(PackReader& in, Argument argument, StoreRequest& request) {
    switch (argument) {
        case Argument::key:
            request.keys.push_back(in.bytes());
            break;
        case Argument::keys:
        case Argument::pairs: {
            const std::uint32_t step = argument == Argument::pairs ? 2 : 1;
            const std::uint32_t count = in.array();
            for (std::uint32_t i = 0; in.ok() && i < count; i += step) {
                request.keys.push_back(in.bytes());
                if (step == 2) request.values.push_back(in.bytes());
            }
            break;
        }
        case Argument::value:
            request.values.push_back(in.bytes());
            break;
        case Argument::expected:
            if (!in.nil()) request.expected = in.bytes();
            break;
        case Argument::delta:
            request.delta = in.integer();
            break;
        case Argument::after:
            request.after = in.bytes();
            break;
        case Argument::number:
            request.number = in.uint();
            break;
        case Argument::timeout:
            request.timeout_ms = in.uint();
            break;
    }
}

void write(PackWriter& out, Argument argument, const StoreRequest& request) {
    switch (argument) {
        case Argument::key:
            return out.bin(request.keys.front());
        case Argument::keys:
        case Argument::pairs: {
            const bool pairs = argument == Argument::pairs;
            out.array(static_cast<std::uint32_t>(request.keys.size() * (pairs ? 2 : 1)));
            for (std::size_t i = 0; i < request.keys.size(); ++i) {
                out.bin(request.keys[i]);
                if (pairs) out.bin(request.values[i]);
            }
            return;
        }
        case Argument::value:
            return out.bin(request.values.front());
        case Argument::expected:
            return request.expected ? out.bin(*request.expected) : out.nil();
        case Argument::delta:
            return out.integer(request.delta);
        case Argument::after:
            return out.bin(request.after);
        case Argument::number:
            return out.uint(request.number);
        case Argument::timeout:
            return out.uint(request.timeout_ms);
    }
}

void append(Bytes& bytes, const StoreRequest& request, std::uint64_t generation) {
    const std::span<const Argument> arguments = arguments_of(request.op).value();
    PackWriter out(bytes);
    out.array(static_cast<std::uint32_t>(1 + arguments.size()));
    out.uint(generation);
    for (const Argument argument : arguments) write(out, argument, request);
}

}  // namespace

Result<StoreRequest> StoreRequest::decode(Op op, PackReader& in) {
    const auto arguments = arguments_of(op);
    if (!arguments) return fail(Errc::invalid_input, "unknown operation {}", static_cast<int>(op));
    StoreRequest request;
    request.op = op;
    for (const Argument argument : *arguments) read(in, argument, request);
    if (!in.ok()) return fail(Errc::invalid_input, "malformed arguments");
    for (const std::string_view k : request.keys)
        if (k.size() > kKeyBytesMax)
            return fail(Errc::invalid_input, "a key of {} bytes, more than {}", k.size(),
                        kKeyBytesMax);
    for (const std::string_view v : request.values)
        if (v.size() > kValueBytesMax)
            return fail(Errc::invalid_input, "a value of {} bytes, more than {}", v.size(),
                        kValueBytesMax);
    return request;
}

Result<void> StoreRequest::check() const {
    const auto arguments = arguments_of(op);
    if (!arguments) return fail(Errc::invalid_input, "unknown operation {}", static_cast<int>(op));
    for (const Argument argument : *arguments) {
        if (argument == Argument::key && keys.size() != 1)
            return fail(Errc::invalid_input, "{} keys where there is one", keys.size());
        if (argument == Argument::value && values.size() != 1)
            return fail(Errc::invalid_input, "{} values where there is one", values.size());
        if (argument == Argument::pairs && keys.size() != values.size())
            return fail(Errc::invalid_input, "{} keys and {} values", keys.size(), values.size());
    }
    return {};
}

Bytes StoreRequest::encode(std::uint64_t generation) const {
    Bytes bytes;
    append(bytes, *this, generation);
    return bytes;
}

Bytes encode_request(RequestHeader header, const StoreRequest& request, std::uint64_t generation) {
    header.op = request.op;
    Bytes frame = encode_request(header, {});
    append(frame, request, generation);
    const auto payload_bytes = static_cast<std::uint32_t>(payload_of(frame).size());
    std::ranges::copy(encode_header({FrameType::request, payload_bytes}), frame.begin());
    return frame;
}

}  // namespace dtrun
