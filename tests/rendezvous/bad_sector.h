#pragma once

#include <sqlite3.h>
#include <sys/stat.h>
#include <string>

namespace dtrun {

/// SQLite's own file system, but that one page of one file cannot be read, under whatever name.
class BadSector {
public:
    BadSector() : vfs_(*sqlite3_vfs_find(nullptr)) {
        real_ = sqlite3_vfs_find(nullptr);
        vfs_.zName = "bad sector";
        vfs_.xOpen = open;
        sqlite3_vfs_register(&vfs_, 1);
    }
    ~BadSector() {
        sqlite3_vfs_register(real_, 1);
        sqlite3_vfs_unregister(&vfs_);
    }
    static constexpr sqlite3_int64 kBytes = 4'096;
    /// \param page  from 0
    static void put(const std::string& file, sqlite3_int64 page) {
        file_ = inode(file);
        at_ = page * kBytes;
    }

private:
    static ino_t inode(const std::string& file) {
        struct stat found {};
        return ::stat(file.c_str(), &found) == 0 ? found.st_ino : 0;
    }
    static int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
        const int result = real_->xOpen(real_, name, file, flags, out);
        if (result != SQLITE_OK || (flags & SQLITE_OPEN_MAIN_DB) == 0 || inode(name) != file_)
            return result;
        methods_ = *file->pMethods;
        read_ = methods_.xRead;
        methods_.xRead = [](sqlite3_file* f, void* into, int count, sqlite3_int64 at) {
            const bool is_there = at < at_ + kBytes && at + count > at_;
            return is_there ? SQLITE_IOERR_READ : read_(f, into, count, at);
        };
        file->pMethods = &methods_;
        return result;
    }

    sqlite3_vfs vfs_;
    static inline sqlite3_vfs* real_ = nullptr;
    static inline sqlite3_io_methods methods_{};
    static inline int (*read_)(sqlite3_file*, void*, int, sqlite3_int64) = nullptr;
    static inline ino_t file_ = 0;
    static inline sqlite3_int64 at_ = 0;
};

}  // namespace dtrun
