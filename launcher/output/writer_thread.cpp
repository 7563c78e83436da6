#include "launcher/output/writer_thread.h"

#include <csignal>
#include <utility>

namespace dtrun::output {

std::thread start_writer_thread(std::function<void()> run) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    for (const int own_fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
        sigdelset(&all, own_fault);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    std::thread thread(std::move(run));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

}  // namespace dtrun::output
