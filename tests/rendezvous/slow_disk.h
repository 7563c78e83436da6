#pragma once

#include <sqlite3.h>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

namespace dtrun {

/// SQLite's own file system, but that syncs wait while `busy`, and that nothing can be written while `full`
/// or `over_quota`, of which SQLite knows no more than errno.
class SlowDisk {
public:
    SlowDisk() : vfs_(*sqlite3_vfs_find(nullptr)) {
        real_ = sqlite3_vfs_find(nullptr);
        vfs_.zName = "slow";
        vfs_.xOpen = open;
        sqlite3_vfs_register(&vfs_, 1);
    }
    ~SlowDisk() {
        sqlite3_vfs_register(real_, 1);
        sqlite3_vfs_unregister(&vfs_);
    }
    static inline std::atomic<bool> busy = false;
    static inline std::atomic<bool> full = false;
    static inline std::atomic<bool> over_quota = false;
    static inline std::atomic<int> writes = 0;  ///< to the log
    static inline std::atomic<int> syncs_waiting = 0;

private:
    static int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
        const int result = real_->xOpen(real_, name, file, flags, out);
        // Others have other methods, and the log is what a commit writes and syncs.
        if (result != SQLITE_OK || (flags & SQLITE_OPEN_WAL) == 0) return result;
        methods_ = *file->pMethods;
        sync_ = methods_.xSync;
        write_ = methods_.xWrite;
        methods_.xSync = [](sqlite3_file* f, int how) {
            ++syncs_waiting;
            while (busy) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            --syncs_waiting;
            return sync_(f, how);
        };
        methods_.xWrite = [](sqlite3_file* f, const void* bytes, int count, sqlite3_int64 at) {
            if (over_quota) return SQLITE_IOERR_WRITE;
            ++writes;
            return full ? SQLITE_FULL : write_(f, bytes, count, at);
        };
        control_ = methods_.xFileControl;
        methods_.xFileControl = [](sqlite3_file* f, int what, void* argument) {
            if (what != SQLITE_FCNTL_LAST_ERRNO || !over_quota) return control_(f, what, argument);
            *static_cast<int*>(argument) = EDQUOT;
            return SQLITE_OK;
        };
        file->pMethods = &methods_;
        return result;
    }

    sqlite3_vfs vfs_;
    static inline sqlite3_vfs* real_ = nullptr;
    static inline sqlite3_io_methods methods_{};
    static inline int (*sync_)(sqlite3_file*, int) = nullptr;
    static inline int (*control_)(sqlite3_file*, int, void*) = nullptr;
    static inline int (*write_)(sqlite3_file*, const void*, int, sqlite3_int64) = nullptr;
};

}  // namespace dtrun
