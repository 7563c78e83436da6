#include "rendezvous/wire/store_request.h"

#include <algorithm>
#include <initializer_list>
#include <span>

namespace dtrun {
namespace {

/// A part of a transaction is larger in memory than on the wire.
constexpr std::size_t kTransactionMax = 65'536;

/// The names in operations.def.
enum class Argument : std::uint8_t {
    key,  ///< or the prefix of keys
    keys,
    pairs,  ///< key, value, key, value, … in one array
    value,
    expected,
    delta,
    after,
    number,  ///< a limit, a revision, an item or the id of a request
    timeout,
    owner,
    ttl,
    limit,
    conditions,
    actions,
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

/// Begins a list's next row of three; what lies behind them is left out by end_row().
std::uint32_t begin_row(PackReader& in) {
    const std::uint32_t items = in.array();
    if (items < 3) in.set_failed();
    return items;
}

void end_row(PackReader& in, std::uint32_t items) {
    for (; in.ok() && items > 3; --items) in.skip();
}

Condition read_condition(PackReader& in) {
    const std::uint32_t items = begin_row(in);
    Condition condition;
    condition.key = in.bytes();
    const std::uint64_t kind = in.uint();
    condition.kind = static_cast<Condition::Kind>(std::min<std::uint64_t>(kind, UINT8_MAX));
    switch (condition.kind) {
        case Condition::Kind::missing:
        case Condition::Kind::exists:
            in.skip();
            break;
        case Condition::Kind::value:
            condition.value = in.bytes();
            break;
        case Condition::Kind::revision:
            condition.revision = in.uint();
            break;
        default:
            in.set_failed();
    }
    end_row(in, items);
    return condition;
}

void write(PackWriter& out, const Condition& condition) {
    out.array(3);
    out.bin(condition.key);
    out.uint(static_cast<std::uint64_t>(condition.kind));
    if (condition.kind == Condition::Kind::value)
        out.bin(condition.value);
    else if (condition.kind == Condition::Kind::revision)
        out.uint(condition.revision);
    else
        out.nil();
}

Action read_action(PackReader& in) {
    const std::uint32_t items = begin_row(in);
    Action action;
    const std::uint64_t kind = in.uint();
    if (kind > static_cast<std::uint64_t>(Action::Kind::add)) in.set_failed();
    action.kind = static_cast<Action::Kind>(kind);
    action.key = in.bytes();
    action.value = in.bytes();
    end_row(in, items);
    return action;
}

void write(PackWriter& out, const Action& action) {
    out.array(3);
    out.uint(static_cast<std::uint64_t>(action.kind));
    out.bin(action.key);
    out.bin(action.value);
}

template <class Row>
void read_rows(PackReader& in, std::vector<Row>& rows, Row (*read_row)(PackReader&)) {
    const std::uint32_t count = in.array();
    if (count > kTransactionMax) in.set_failed();
    while (in.ok() && rows.size() < count) rows.push_back(read_row(in));
}

template <class Row>
void write_rows(PackWriter& out, const std::vector<Row>& rows) {
    out.array(static_cast<std::uint32_t>(rows.size()));
    for (const Row& row : rows) write(out, row);
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
        case Argument::owner:
            request.owner = in.uint();
            break;
        case Argument::ttl:
            request.ttl_ms = in.uint();
            break;
        case Argument::limit:
            request.limit = in.uint();
            break;
        case Argument::conditions:
            read_rows(in, request.conditions, read_condition);
            break;
        case Argument::actions:
            read_rows(in, request.actions, read_action);
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
        case Argument::owner:
            return out.uint(request.owner);
        case Argument::ttl:
            return out.uint(request.ttl_ms);
        case Argument::limit:
            return out.uint(request.limit);
        case Argument::conditions:
            return write_rows(out, request.conditions);
        case Argument::actions:
            return write_rows(out, request.actions);
    }
}

Result<void> check_key(std::string_view key) {
    if (key.size() <= kKeyBytesMax) return {};
    return fail(Errc::invalid_input, "a key of {} bytes, more than {}", key.size(), kKeyBytesMax);
}

Result<void> check_value(std::string_view value) {
    if (value.size() <= kValueBytesMax) return {};
    return fail(Errc::invalid_input, "a value of {} bytes, more than {}", value.size(),
                kValueBytesMax);
}

Result<void> check_sizes(const StoreRequest& request) {
    Result<void> fits;
    for (const std::string_view key : request.keys)
        if (fits) fits = check_key(key);
    for (const std::string_view value : request.values)
        if (fits) fits = check_value(value);
    for (const Condition& condition : request.conditions)
        if (fits) fits = check_key(condition.key);
    for (const Action& action : request.actions) {
        if (fits) fits = check_key(action.key);
        if (fits) fits = check_value(action.value);
    }
    return fits;
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
    if (auto sizes = check_sizes(request); !sizes) return std::unexpected(sizes.error());
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
    if (std::max(conditions.size(), actions.size()) > kTransactionMax)
        return fail(Errc::invalid_input,
                    "a transaction has at most {} conditions, and as many actions",
                    kTransactionMax);
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
