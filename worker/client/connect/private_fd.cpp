#include "worker/client/connect/private_fd.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include <mutex>
#include <set>

namespace dtrun::embedded {
namespace {

/// What fork() must know belongs to the process, not to an object. Never destroyed: threads may run
/// until the process has ended.
struct Registry {
    std::mutex mutex;  ///< held by who forks, and while descriptors come and go
    std::set<int> fds;
};

Registry& registry() {
    static Registry* const only = [] {
        auto* made = new Registry;
        ::pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                         [] {
                             for (const int fd : registry().fds) ::close(fd);
                             registry().fds.clear();
                             registry().mutex.unlock();
                         });
        return made;
    }();
    return *only;
}

}  // namespace

PrivateFd::PrivateFd(const std::function<int()>& make) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    fd_ = make();
    if (fd_ >= 0) all.fds.insert(fd_);
}

void PrivateFd::reset() noexcept {
    if (fd_ < 0) return;
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (all.fds.erase(fd_) > 0) ::close(fd_);  // else we are a forked child, and it is closed
    fd_ = -1;
}

std::pair<PrivateFd, PrivateFd> private_socket_pair() {
    std::pair<PrivateFd, PrivateFd> pair;
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return pair;
    all.fds.insert(ends, ends + 2);
    pair.first.fd_ = ends[0];
    pair.second.fd_ = ends[1];
    return pair;
}

}  // namespace dtrun::embedded
