#pragma once

#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/modes.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/mpi/pmi_hosts.h"
#include "worker/mpi/pmix_server.h"

#include <unistd.h>
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

namespace dtrun {

using namespace mpi;

/// The environment of this process.
inline std::map<std::string, std::string, std::less<>> environment_here() {
    std::map<std::string, std::string, std::less<>> env;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const std::size_t equals = text.find('=');
        if (equals != text.npos) env.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    return env;
}

/// Hosts in one process, each with its server of PMIx.
///
/// Thread: the executor's, which must not run any more when this is destroyed.
class PmixHosts {
public:
    PmixHosts(asio::io_context& io, std::vector<std::uint32_t> sizes, const std::string& library)
        : io_(io), sizes_(std::move(sizes)), networks_(io, sizes_.size()) {
        for (std::uint32_t host = 0; host < sizes_.size(); ++host) {
            PmixServer::Options options{.host_name = fmt::format("s{}", host + 1),
                                        .library = library,
                                        .env = environment_here(),
                                        .ranks_worth_waiting = 1,
                                        .started = [this](pid_t pid) { pids.push_back(pid); }};
            servers_.push_back(std::make_unique<PmixServer>(io.get_executor(), networks_.of(host),
                                                            mpi, std::move(options)));
        }
    }

    Result<void> open() {
        for (const auto& server : servers_)
            if (auto opened = server->open(); !opened) return opened;
        return {};
    }
    /// New directories, for prepare() and begin(). Those of before stay: a process may still write there.
    void make_directories() {
        std::ranges::move(directories_, std::back_inserter(past_directories_));
        directories_.clear();
        for (std::size_t host = 0; host < sizes_.size(); ++host)
            directories_.push_back(std::make_unique<TempDir>());
    }
    asio::awaitable<Result<void>> prepare(std::size_t hosts) {
        for (std::size_t host = 0; host < hosts; ++host) {
            auto prepared = co_await servers_[host]->prepare(directory(host));
            if (!prepared) co_return prepared;
        }
        co_return Result<void>();
    }
    asio::awaitable<void> ready() {
        for (const auto& server : servers_) co_await server->ready();
    }
    void begin(MpiMode mode, const std::string& job, std::uint64_t generation = 1) {
        networks_.begin();
        for (std::uint32_t host = 0; host < sizes_.size(); ++host) {
            MpiWorld world = mpi_world(sizes_, host, generation);
            world.job = job;
            servers_[host]->begin(world, directory(host), mode);
        }
    }
    /// \param gone  once no server has a process any more
    void end(std::function<void()> gone) {
        const auto left = std::make_shared<std::size_t>(servers_.size());
        for (const auto& server : servers_)
            server->end([left, gone] {
                if (--*left == 0) gone();
            });
    }
    void stop() {
        for (const auto& server : servers_) server->stop();
    }
    asio::awaitable<void> join() {
        for (const auto& server : servers_) co_await server->join();
    }

    std::size_t size() const { return sizes_.size(); }
    const std::string& directory(std::size_t host) const { return directories_[host]->path(); }
    PmixServer& server(std::size_t host) { return *servers_[host]; }
    MpiNetworks& networks() { return networks_; }
    MpiWorld world(std::uint32_t host) const { return mpi_world(sizes_, host); }

    RecordedMpi mpi;
    std::vector<pid_t> pids;  ///< of processes of libpmix

private:
    asio::io_context& io_;
    std::vector<std::uint32_t> sizes_;
    MpiNetworks networks_;
    std::vector<std::unique_ptr<TempDir>> directories_, past_directories_;
    std::vector<std::unique_ptr<PmixServer>> servers_;
};

}  // namespace dtrun
