#include "lab/names.h"

#include "collectives/backends/backend_table.h"
#include "collectives/codec/format_table.h"

#include <fmt/ranges.h>
#include <algorithm>

namespace dtrun::lab {
namespace {

using std::string_view;
using Names = std::vector<std::string>;

/// Takes `suffix` from the end of a name.
bool take(string_view& name, string_view suffix) {
    if (!name.ends_with(suffix)) return false;
    name.remove_suffix(suffix.size());
    return true;
}

Error unknown(string_view what, string_view name, const Names& known) {
    return {Errc::invalid_input,
            fmt::format("no {} \"{}\": {}", what, name, fmt::join(known, ", "))};
}

}  // namespace

const std::vector<CollectiveOp>& measured_ops() {
    static const std::vector<CollectiveOp> ops = [] {
        std::vector<CollectiveOp> all;
        for (int i = 0; i <= static_cast<int>(CollectiveOp::sendrecv); ++i)
            if (const auto op = static_cast<CollectiveOp>(i); op != CollectiveOp::allgatherv)
                all.push_back(op);
        return all;
    }();
    return ops;
}

const collectives::OperationRow& row_of(CollectiveOp op) {
    using collectives::Extent;
    static constexpr collectives::OperationRow kSendrecv{
        {}, "sendrecv", "", Extent::part, Extent::part, false, false, false};
    if (op == CollectiveOp::sendrecv) return kSendrecv;
    return collectives::kOperations[static_cast<std::size_t>(op)];
}

string_view name_of(CollectiveOp op) {
    return row_of(op).name;
}

Result<CollectiveOp> parse_op(string_view name) {
    std::string wanted(name);
    std::ranges::replace(wanted, '-', '_');
    for (const CollectiveOp op : measured_ops())
        if (wanted == name_of(op)) return op;
    return std::unexpected(unknown("operation", name, operation_names()));
}

Result<DType> parse_dtype(string_view name) {
    for (std::size_t i = 0; i < collectives::kDTypes; ++i)
        if (const auto type = static_cast<DType>(i); name == name_of(type)) return type;
    return std::unexpected(unknown("type", name, type_names()));
}

string_view name_of(const std::optional<Format>& compression) {
    return compression ? collectives::row_of(*compression).name : "none";
}

Result<std::optional<Format>> parse_compression(string_view name) {
    if (name == "none") return std::optional<Format>();
    if (const auto* const row = collectives::find_format(name)) return row->format;
    return std::unexpected(unknown("compression", name, compression_names()));
}

Result<Algorithm> parse_algorithm(string_view name) {
    Algorithm algorithm;
    algorithm.name = name;
    algorithm.serial = name == "serial";
    if (algorithm.serial || name == "parallel") return algorithm;
    string_view rest = name;
    algorithm.stochastic = take(rest, "-stochastic");
    const bool without = take(rest, "-noef");
    const bool with = !without && take(rest, "-ef");
    algorithm.stochastic = take(rest, "-stochastic") || algorithm.stochastic;
    const auto* const row = collectives::find_format(rest);
    if (row == nullptr)
        return fail(Errc::invalid_input,
                    "no algorithm \"{}\": serial, parallel, or a compression such as fp16 or "
                    "fp8-e4m3, with -ef, -noef or -stochastic behind it",
                    name);
    algorithm.format = row->format;
    algorithm.feedback = with || (row->is_scaled() && !without);
    return algorithm;
}

const Names& operation_names() {
    static const Names names = [] {
        Names all;
        for (const CollectiveOp op : measured_ops()) all.emplace_back(name_of(op));
        return all;
    }();
    return names;
}

const Names& type_names() {
    static const Names names = [] {
        Names all;
        for (std::size_t i = 0; i < collectives::kDTypes; ++i)
            all.emplace_back(name_of(static_cast<DType>(i)));
        return all;
    }();
    return names;
}

const Names& compression_names() {
    static const Names names = [] {
        Names all{"none"};
        for (const collectives::FormatRow& row : collectives::kFormats) all.emplace_back(row.name);
        return all;
    }();
    return names;
}

const Names& scaling_names() {
    static const Names names{"strong", "weak"};
    return names;
}

const Names& backend_names() {
    static const Names names = [] {
        Names all;
        for (const collectives::BackendRow& row : collectives::kBackends)
            all.emplace_back(row.name);
        return all;
    }();
    return names;
}

}  // namespace dtrun::lab
