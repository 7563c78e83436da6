#include "collectives/backends/gloo/store.h"

#include <stdexcept>

namespace dtrun::collectives::over_gloo {

Result<void> GlooStore::meet() {
    const KeyStore::Pair here(key_of(fmt::format("here/{}", spec_.rank)), "");
    if (auto said = spec_.store->set({&here, 1}); !said) return said;
    std::vector<std::string> keys;
    for (std::uint32_t rank = 0; rank < spec_.size; ++rank)
        keys.push_back(key_of(fmt::format("here/{}", rank)));
    const auto all = spec_.store->get(keys, spec_.timeout);
    if (!all) return std::unexpected(all.error());
    for (std::uint32_t rank = 0; rank < spec_.size; ++rank)
        if (!(*all)[rank].empty())
            return fail(Errc::invalid_input, "rank {}: {}", spec_.members[rank], (*all)[rank]);
    return {};
}

void GlooStore::refuse(const std::string& why) {
    const KeyStore::Pair here(key_of(fmt::format("here/{}", spec_.rank)), why);
    // If the store fails, too, peers wait until their own timeout.
    static_cast<void>(spec_.store->set({&here, 1}));
}

/// Exceptions are what Gloo expects of a store.
void GlooStore::give_up(const Error& error) {
    error_ = error;
    throw std::runtime_error(error.message);
}

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
    const KeyStore::Pair pair(key_of(key), std::string(data.begin(), data.end()));
    if (auto done = spec_.store->set({&pair, 1}); !done) give_up(done.error());
}

std::vector<std::string> GlooStore::fetch(const std::vector<std::string>& keys,
                                          std::chrono::milliseconds timeout) {
    std::vector<std::string> own;
    for (const std::string& key : keys) own.push_back(key_of(key));
    auto values = spec_.store->get(own, timeout);
    if (!values) give_up(values.error());
    return std::move(*values);
}

std::vector<char> GlooStore::get(const std::string& key) {
    const auto values = fetch({key}, spec_.timeout);
    return {values.front().begin(), values.front().end()};
}

void GlooStore::wait(const std::vector<std::string>& keys) {
    static_cast<void>(fetch(keys, spec_.timeout));
}

void GlooStore::wait(const std::vector<std::string>& keys,
                     const std::chrono::milliseconds& timeout) {
    static_cast<void>(fetch(keys, timeout));
}

}  // namespace dtrun::collectives::over_gloo
