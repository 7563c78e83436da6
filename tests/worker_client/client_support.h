#pragma once

#include <dtrun/worker.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dtrun::testing {

/// Variables that are set while it lives, and all others of launchers that are not.
class Variables {
public:
    explicit Variables(const std::map<std::string, std::string>& values = {}) {
        for (const char* name : {"DTRUN_SOCKET",
                                 "DTRUN_RANK",
                                 "DTRUN_GENERATION",
                                 "DTRUN_ELASTIC",
                                 "DTRUN_SERVE",
                                 "DTRUN_JOB_NAME",
                                 "DTRUN_SECRET_FILE",
                                 "DTRUN_SECRET_FD",
                                 "DTRUN_MIN_NP",
                                 "DTRUN_MAX_NP",
                                 "DTRUN_SERVER_TIMEOUT",
                                 "SLURM_STEP_ID",
                                 "OMPI_COMM_WORLD_RANK",
                                 "OMPI_COMM_WORLD_SIZE",
                                 "PMI_RANK",
                                 "PMI_SIZE",
                                 "RANK",
                                 "WORLD_SIZE",
                                 "LOCAL_RANK",
                                 "LOCAL_WORLD_SIZE"})
            replace(name, std::nullopt);
        for (const auto& [name, value] : values) replace(name, value);
    }
    ~Variables() {
        while (!before_.empty()) {
            put(before_.back().first, before_.back().second);
            before_.pop_back();
        }
    }
    Variables(const Variables&) = delete;
    Variables& operator=(const Variables&) = delete;

private:
    static void put(const std::string& name, const std::optional<std::string>& value) {
        if (value)
            ::setenv(name.c_str(), value->c_str(), 1);
        else
            ::unsetenv(name.c_str());
    }
    void replace(const std::string& name, const std::optional<std::string>& value) {
        const char* old = std::getenv(name.c_str());
        before_.emplace_back(name, old ? std::optional<std::string>(old) : std::nullopt);
        put(name, value);
    }
    std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

/// TSan ends a forked child of several threads that starts another one.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kCanFork = false;
#else
inline constexpr bool kCanFork = true;
#endif

/// A rank of the agent at `address`.
inline Worker rank_of_agent(const std::string& address, std::uint32_t rank) {
    const Variables variables({{"DTRUN_SOCKET", address},
                               {"DTRUN_RANK", std::to_string(rank)},
                               {"DTRUN_GENERATION", "1"}});
    return Worker();
}

/// A rank of an elastic job, which can rejoin.
inline Worker elastic_rank_of_agent(const std::string& address, std::uint32_t rank) {
    const Variables variables({{"DTRUN_SOCKET", address},
                               {"DTRUN_RANK", std::to_string(rank)},
                               {"DTRUN_GENERATION", "1"},
                               {"DTRUN_ELASTIC", "1"}});
    return Worker(elastic);
}

/// Runs `body(rank)` in a thread for each of `ranks`, and waits for all. What they throw comes out.
template <class Body>
void on_all(std::uint32_t ranks, Body body) {
    std::vector<std::exception_ptr> errors(ranks);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
                body(rank);
            } catch (...) {
                errors[rank] = std::current_exception();
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
}

/// The code of the dtrun::Error that `body` throws; DTRUN_OK if it throws none.
template <class Body>
int code_of(Body body) {
    try {
        body();
    } catch (const v0::Error& error) {
        return error.code().value();
    }
    return DTRUN_OK;
}

}  // namespace dtrun::testing
