// A library that is put under `dtrun serve` by LD_PRELOAD, for ./dev bench daemon: its disk does what the file
// $BAD_DISK says, "slow MILLISECONDS" for each sync or "fail" for each write and sync. SQLite is the only part of
// a daemon that writes with these calls.

#include <dlfcn.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace {

struct Trouble {
    bool fails = false;
    std::chrono::milliseconds sync_takes{0};
};

Trouble trouble() {
    const char* const path = std::getenv("BAD_DISK");
    std::ifstream file(path != nullptr ? path : "");
    std::string what;
    long ms = 0;
    file >> what >> ms;
    return {what == "fail", std::chrono::milliseconds(what == "slow" ? ms : 0)};
}

template <class Function>
Function* real(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int sync_badly(const char* name, int fd) {
    const Trouble now = trouble();
    if (now.fails) {
        errno = EIO;
        return -1;
    }
    std::this_thread::sleep_for(now.sync_takes);
    return real<int(int)>(name)(fd);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int fsync(int fd) {
    return sync_badly("fsync", fd);
}

__attribute__((visibility("default"))) int fdatasync(int fd) {
    return sync_badly("fdatasync", fd);
}

__attribute__((visibility("default"))) ssize_t pwrite64(int fd, const void* bytes, size_t count,
                                                        off64_t at) {
    if (trouble().fails) {
        errno = EIO;
        return -1;
    }
    return real<ssize_t(int, const void*, size_t, off64_t)>("pwrite64")(fd, bytes, count, at);
}

}  // extern "C"
