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

PmiNames::PmiNames(stores::JobStore& store, std::function<void()> answered)
    : store_(store), answered_(std::move(answered)) {}

PmiNames::~PmiNames() {
    for (const auto& [number, ticket] : asked_) store_.forget(ticket);
}

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
    StoreRequest request;
    request.op = op;
    request.keys.push_back(key);
    if (value) request.values.push_back(*value);
    const std::uint64_t number = ++last_asked_;
    asked_[number] = 0;
    const stores::JobStore::Ticket ticket =
        store_.ask(request, [this, number, done = std::move(done)](const StoreReply& answer) {
            asked_.erase(number);
            done(answer);
            answered_();
        });
    if (const auto at = asked_.find(number); at != asked_.end()) at->second = ticket;
}

}  // namespace dtrun::mpi
