// dtrun-pmix: the PMIx server of one host, for the ranks of one generation of a job. The agent, which
// carries this program inside, starts it with a socket between the two, and lets it load libpmix,
// which it must not do itself: it is one static file. It ends when the agent closes the socket.
//
//     dtrun-pmix SOCKET DIRECTORY HOST_NAME LIBRARY
#include "base/fd.h"
#include "worker/mpi/pmix_bridge.h"
#include "worker/mpi/pmix_job.h"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace dtrun::mpi {
namespace {

/// Two for each rank that connects, and those of libpmix.
constexpr std::uint64_t kDescriptors = 1u << 20;

/// Leaves without running what libraries have left to run at an end: nothing of libpmix outlives the
/// process but files, and these are the agent's to remove.
[[noreturn]] void leave(int code) {
    ::_exit(code);
}

class Program {
public:
    Program(int socket, std::string directory, std::string host_name, std::string library)
        : socket_(socket),
          directory_(std::move(directory)),
          host_name_(std::move(host_name)),
          library_name_(std::move(library)),
          bridge_(socket) {}

    [[noreturn]] void run() {
        library_ = must(load_pmix(library_name_));
        bridge_.send(pmix_encode(PmixLoaded{library_.version, library_.path}));
        must(pmix_init(library_, bridge_.module(), directory_, host_name_));
        for (;;) {
            std::array<pollfd, 2> waits{pollfd{socket_, POLLIN, 0},
                                        pollfd{bridge_.wake_fd(), POLLIN, 0}};
            if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) leave(1);
            if (waits[1].revents != 0 && !bridge_.flush()) leave(0);
            if (waits[0].revents != 0) receive();
        }
    }

private:
    template <class T>
    T must(Result<T> result) {
        if (!result) {
            const auto code = static_cast<std::uint8_t>(result.error().code);
            bridge_.send(pmix_encode(PmixFailed{code, result.error().message}));
            leave(bridge_.flush() ? 1 : 0);
        }
        if constexpr (!std::is_void_v<T>) return std::move(*result);
    }

    void receive() {
        const ssize_t size = ::read(socket_, bytes_.data(), bytes_.size());
        if (size < 0 && errno == EINTR) return;
        if (size <= 0) leave(0);
        frames_.feed({bytes_.data(), static_cast<std::size_t>(size)});
        for (auto frame = must(frames_.next()); frame; frame = must(frames_.next())) take(*frame);
    }

    void take(const PmixFrame& frame) {
        switch (frame.kind) {
            case PmixKind::job:
                return begin(must(pmix_decode<PmixJob>(frame.payload)));
            case PmixKind::answer:
                return bridge_.answer(must(pmix_decode<PmixAnswer>(frame.payload)));
            case PmixKind::found:
                return bridge_.answer(must(pmix_decode<PmixFound>(frame.payload)));
            case PmixKind::want:
                return bridge_.want(library_, must(pmix_decode<PmixWant>(frame.payload)));
            default:
                return;
        }
    }

    void begin(const PmixJob& job) {
        bridge_.begin(job.nspace, static_cast<std::uint32_t>(job.node_of_rank.size()));
        must(pmix_register(library_, job, directory_));
        bridge_.send(pmix_encode(PmixServing{must(pmix_port(library_, job))}));
    }

    int socket_;
    std::string directory_;
    std::string host_name_;
    std::string library_name_;
    PmixLibrary library_;
    PmixBridge bridge_;
    PmixFrames frames_;
    std::array<char, 64 << 10> bytes_{};
};

/// Blocks signals before libpmix makes threads, which inherit the mask. The agent ends this process
/// by SIGKILL.
void block_signals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
        sigdelset(&all, fault);
    sigprocmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace
}  // namespace dtrun::mpi

int main(int argc, char** argv) {
    using namespace dtrun::mpi;
    if (argc != 5) return 2;
    ::prctl(PR_SET_NAME, "dtrun-pmix");
    block_signals();
    dtrun::raise_descriptor_limit(kDescriptors);
    Program(std::atoi(argv[1]), argv[2], argv[3], argv[4]).run();
}
