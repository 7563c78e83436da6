#include "worker/mpi/pmi_names.h"

#include <fmt/format.h>
#include <algorithm>
#include <string>
#include <utility>

namespace dtrun::mpi {
namespace {

constexpr std::string_view kNames = "dtrun/pmi/name/";
constexpr std::size_t kNameBytesMax = 1'024;

}  // namespace

void PmiNames::publish(std::string_view name, std::string_view port, Done done) {
    ask(Op::compare_set, name, port, std::move(done));
}

void PmiNames::unpublish(std::string_view name, Done done) {
    ask(Op::erase, name, {}, std::move(done));
}

void PmiNames::look_up(std::string_view name, Done done) {
    ask(Op::get, name, {}, std::move(done));
}

void PmiNames::ask(Op op, std::string_view name, std::optional<std::string_view> value, Done done) {
    if (std::max(name.size(), value.value_or("").size()) > kNameBytesMax)
        return done({Status::refused, {}});
    const std::string key = fmt::format("{}{}", kNames, name);
    StoreRequest request{.op = op, .keys = {key}};
    if (value) request.values.push_back(*value);
    queries_.ask(request, [this, done = std::move(done)](const StoreReply& answer) {
        done(answer);
        answered_();
    });
}

}  // namespace dtrun::mpi
