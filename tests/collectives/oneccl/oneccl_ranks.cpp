/// A rank of oneccl_backend_test.py: oneccl_ranks TEST PLUGIN
///
/// Prints "ok" and more if all went well, else what did not, and ends with 1.
#include "tests/collectives/support/plugin_ranks.h"

#include <csignal>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

/// Rank 1 does not come.
Result<void> absent(const Rank& rank) {
    GroupSpec spec = rank.spec_of_all("absent");
    spec.timeout = std::chrono::milliseconds(500);
    if (rank.rank() != 1) return fails(rank, spec);
    return {};
}

/// Rank 1 is not there when the others want something of it, or never again: abort() gets them out,
/// and that is the end of oneCCL.
Result<void> aborts(const Rank& rank, const std::string& how) {
    auto group = rank.connect(rank.spec_of_all("all"));
    if (!group) return std::unexpected(group.error());
    if (auto met = (*group)->run(op::barrier()); !met) return met;
    if (rank.rank() == 1) {
        if (how == "killed") std::raise(SIGKILL);
        // It stays until the others have ended theirs.
        const std::vector<std::string> ended{"the others have ended"};
        const auto told = rank.spec_of_all("all").store->get(ended, std::chrono::seconds(60));
        (*group)->abort();
        return told ? Result<void>{} : std::unexpected(told.error());
    }
    std::vector<float> data(300'000);
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        (*group)->abort();
    });
    Result<void> done;
    if (how == "messages") {
        const Receive receive{1, data.data(), data.size()};
        const auto pending = (*group)->start({}, {&receive, 1});
        if (pending) done = (*pending)->wait();
    } else {
        done = (*group)->run(
            op::allreduce(data.data(), data.data(), data.size(), DType::f32, Reduce::sum));
    }
    other.join();
    if (done) return fail(Errc::internal, "it has ended");
    std::printf("said: %s\n", done.error().message.c_str());
    const KeyStore::Pair ended{"the others have ended", ""};
    if (auto set = rank.spec_of_all("all").store->set({&ended, 1}); !set) return set;
    group->reset();
    const Availability after = rank.backend().probe();
    if (after.available) return fail(Errc::internal, "available after abort()");
    std::printf("after: %s\n", after.why.c_str());
    return {};
}

Result<void> run(const std::string& test, const Rank& rank) {
    if (test == "check") return check(rank, {});
    if (test == "few") return check(rank, rank.few());
    if (test == "wraps") return wraps(rank);
    if (test == "threads") return threads(rank);
    if (test == "interfaces") return interfaces(rank, rank.rank() == 1);
    if (test == "absent") return absent(rank);
    return aborts(rank, test);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    if (std::strcmp(argv[1], "probe") == 0) {
        const Availability found = load(argv[2]).probe();
        std::puts(found.why.c_str());
        return found.available ? 0 : 77;
    }
    const Rank rank(argv[2], 300'012);
    return finish(rank, run(argv[1], rank));
}
