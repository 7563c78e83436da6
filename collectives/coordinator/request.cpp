#include "collectives/coordinator/request.h"

#include <cstring>
#include <type_traits>

namespace dtrun::collectives {
namespace {

constexpr std::size_t kTensorsMax = 1u << 20;
constexpr std::size_t kDimensionsMax = 64;

template <class Value>
void put(std::string& bytes, const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Reads what put() has written; once something is missing, everything is 0 and good() false.
class Input {
public:
    explicit Input(std::string_view bytes) : bytes_(bytes) {}

    template <class Value>
    Value take() {
        Value value{};
        if (bytes_.size() < sizeof value) {
            good_ = false;
            return value;
        }
        std::memcpy(&value, bytes_.data(), sizeof value);
        bytes_.remove_prefix(sizeof value);
        return value;
    }
    std::string rest() { return std::string(bytes_); }
    bool good() const { return good_; }
    bool enough_for(std::size_t items, std::size_t item_bytes) const {
        return items <= bytes_.size() / item_bytes;
    }

private:
    std::string_view bytes_;
    bool good_ = true;
};

std::string describe(const TensorSpec& tensor) {
    std::string text = fmt::format("{} [", name_of(tensor.type));
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
        if (i > 0) text += ", ";
        text += tensor.shape[i] == Request::kOwnRows ? "any" : std::to_string(tensor.shape[i]);
    }
    return text + "]";
}

}  // namespace

std::string_view name_of(RequestKind operation) {
    constexpr std::string_view kNames[kRequestKinds] = {
        "allreduce", "allgather", "broadcast", "all-to-all", "reduce-scatter", "barrier", "join"};
    return kNames[static_cast<std::size_t>(operation)];
}

std::size_t TensorSpec::row_elements() const {
    std::size_t elements = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) elements *= static_cast<std::size_t>(shape[i]);
    return elements;
}

std::size_t TensorSpec::elements() const {
    return shape.empty() ? 1 : static_cast<std::size_t>(shape.front()) * row_elements();
}

std::string encode(const Request& request) {
    std::string bytes;
    put(bytes, request.operation);
    put(bytes, request.reduce);
    put(bytes, request.stochastic);
    put(bytes, static_cast<std::uint8_t>(request.format));
    put(bytes, request.root);
    put(bytes, request.prescale);
    put(bytes, request.postscale);
    put(bytes, static_cast<std::uint32_t>(request.tensors.size()));
    for (const TensorSpec& tensor : request.tensors) {
        put(bytes, tensor.type);
        put(bytes, static_cast<std::uint8_t>(tensor.shape.size()));
        for (const std::int64_t length : tensor.shape) put(bytes, length);
    }
    return bytes + request.name;
}

Result<Request> decode_request(std::string_view bytes) {
    Input input(bytes);
    Request request;
    const auto operation = input.take<std::uint8_t>();
    const auto reduce = input.take<std::uint8_t>();
    request.stochastic = input.take<std::uint8_t>() != 0;
    request.format = input.take<std::uint8_t>();
    request.root = input.take<std::uint32_t>();
    request.prescale = input.take<double>();
    request.postscale = input.take<double>();
    const auto tensors = input.take<std::uint32_t>();
    if (operation >= kRequestKinds || reduce > static_cast<std::uint8_t>(Reduce::adasum) ||
        tensors > kTensorsMax || !input.enough_for(tensors, 2))
        return fail(Errc::invalid_input, "a rank has sent a request that makes no sense");
    request.operation = static_cast<RequestKind>(operation);
    request.reduce = static_cast<Reduce>(reduce);
    for (std::uint32_t i = 0; i < tensors && input.good(); ++i) {
        TensorSpec tensor;
        const auto type = input.take<std::uint8_t>();
        const auto dimensions = input.take<std::uint8_t>();
        if (type >= kDTypesMoved || dimensions > kDimensionsMax)
            return fail(Errc::invalid_input, "a rank has sent a tensor that makes no sense");
        tensor.type = static_cast<DType>(type);
        for (unsigned d = 0; d < dimensions; ++d)
            tensor.shape.push_back(input.take<std::int64_t>());
        request.tensors.push_back(std::move(tensor));
    }
    if (!input.good()) return fail(Errc::invalid_input, "a rank has sent half a request");
    request.name = input.rest();
    return request;
}

std::string describe(const Request& request) {
    std::string text(name_of(request.operation));
    if (is_reduction(request.operation)) text += fmt::format(" ({})", name_of(request.reduce));
    if (request.tensors.empty()) return text;
    text += " of " + describe(request.tensors.front());
    if (request.tensors.size() > 1)
        text += fmt::format(" and {} other tensors", request.tensors.size() - 1);
    if (request.operation == RequestKind::broadcast) text += fmt::format(" from {}", request.root);
    return text;
}

std::string difference(const Request& one, std::uint32_t rank, const Request& other,
                       std::uint32_t other_rank) {
    if (one == other) return {};
    const auto both = [&](std::string_view what, const std::string& first,
                          const std::string& second) {
        return fmt::format("{} for \"{}\" differ between ranks: rank {} has {}, rank {} has {}",
                           what, one.name, rank, first, other_rank, second);
    };
    if (one.operation != other.operation || one.reduce != other.reduce)
        return both("operations", describe(one), describe(other));
    if (one.root != other.root)
        return both("roots", std::to_string(one.root), std::to_string(other.root));
    if (one.tensors.size() != other.tensors.size())
        return both("numbers of tensors", std::to_string(one.tensors.size()),
                    std::to_string(other.tensors.size()));
    for (std::size_t i = 0; i < one.tensors.size(); ++i)
        if (one.tensors[i] != other.tensors[i])
            return both(one.tensors[i].type != other.tensors[i].type ? "types" : "shapes",
                        describe(one.tensors[i]), describe(other.tensors[i]));
    if (one.prescale != other.prescale || one.postscale != other.postscale)
        return both("scale factors", fmt::format("{} and {}", one.prescale, one.postscale),
                    fmt::format("{} and {}", other.prescale, other.postscale));
    return both("compression", fmt::format("format {}", one.format),
                fmt::format("format {}", other.format));
}

}  // namespace dtrun::collectives
