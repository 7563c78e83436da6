#include "tests/simulation/disk.h"

#include "tests/simulation/world.h"

#include <sqlite3.h>
#include <algorithm>
#include <cstring>

namespace dtrun::simulation {
namespace {

constexpr std::size_t kSector = 512;
constexpr std::uint64_t kFreeBytes = 1u << 30;

World* the_world = nullptr;

}  // namespace

/// An open file.
struct DiskFile {
    sqlite3_file base;
    Disk* disk;
    std::shared_ptr<Disk::File>* file;

    static DiskFile& of(sqlite3_file* file) { return *reinterpret_cast<DiskFile*>(file); }

    static int close(sqlite3_file* file) {
        delete of(file).file;
        return SQLITE_OK;
    }
    static int read(sqlite3_file* file, void* into, int count, sqlite3_int64 at) {
        const std::string& data = (*of(file).file)->data;
        const auto wanted = static_cast<std::size_t>(count);
        const auto from = std::min(static_cast<std::size_t>(at), data.size());
        const std::size_t got = std::min(wanted, data.size() - from);
        std::memcpy(into, data.data() + from, got);
        if (got == wanted) return SQLITE_OK;
        std::memset(static_cast<char*>(into) + got, 0, wanted - got);
        return SQLITE_IOERR_SHORT_READ;
    }
    void change(Disk::Write write) const {
        (*file)->apply(write, (*file)->data);
        (*file)->unsynced.push_back(std::move(write));
    }
    static int write(sqlite3_file* file, const void* from, int count, sqlite3_int64 at) {
        DiskFile& self = of(file);
        if (self.disk->is_full()) return SQLITE_FULL;
        self.change({static_cast<std::uint64_t>(at),
                     std::string(static_cast<const char*>(from), static_cast<std::size_t>(count))});
        return SQLITE_OK;
    }
    static int truncate(sqlite3_file* file, sqlite3_int64 size) {
        of(file).change({static_cast<std::uint64_t>(size), "", true});
        return SQLITE_OK;
    }
    static int sync(sqlite3_file* file, int) {
        DiskFile& self = of(file);
        Disk& disk = *self.disk;
        ++disk.syncs_;
        const bool slow = disk.world_.now() < disk.slow_until_;
        const auto takes = slow ? disk.world_.draw_time(microseconds(0), disk.slow_sync_)
                                : disk.world_.draw_time(microseconds(50), microseconds(800));
        // The program may be killed meanwhile: then it never returns.
        const std::shared_ptr<Disk::File> synced = *self.file;
        const std::size_t writes = synced->unsynced.size();
        if (Fiber::running() != nullptr)
            SimulatedSystem::current->poll(-1, 0, disk.world_.now() + takes);
        if (std::exchange(disk.fails_, false)) return SQLITE_IOERR_FSYNC;
        if (disk.forgets_) return SQLITE_OK;
        for (std::size_t i = 0; i < writes; ++i) synced->apply(synced->unsynced[i], synced->synced);
        synced->unsynced.erase(synced->unsynced.begin(),
                               synced->unsynced.begin() + static_cast<std::ptrdiff_t>(writes));
        return SQLITE_OK;
    }
    static int size(sqlite3_file* file, sqlite3_int64* bytes) {
        *bytes = static_cast<sqlite3_int64>((*of(file).file)->data.size());
        return SQLITE_OK;
    }
    static int lock(sqlite3_file*, int) { return SQLITE_OK; }
    static int is_reserved(sqlite3_file*, int* reserved) {
        *reserved = 0;
        return SQLITE_OK;
    }
    static int control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
    static int sector_size(sqlite3_file*) { return kSector; }
    static int characteristics(sqlite3_file*) { return 0; }

    static constexpr sqlite3_io_methods kMethods = {
        1,       close,       read,    write,       truncate,        sync,    size,    lock,
        lock,    is_reserved, control, sector_size, characteristics, nullptr, nullptr, nullptr,
        nullptr, nullptr,     nullptr};
};

namespace {

Disk& current_disk() {
    return the_world->current_process()->machine().disk();
}

}  // namespace

void Disk::File::apply(const Write& write, std::string& to) const {
    if (write.truncates) {
        to.resize(write.at);
        return;
    }
    if (to.size() < write.at + write.bytes.size()) to.resize(write.at + write.bytes.size());
    to.replace(write.at, write.bytes.size(), write.bytes);
}

bool Disk::is_full() const {
    return world_.now() < full_until_;
}

std::uint64_t Disk::free_bytes() const {
    return is_full() ? 0 : kFreeBytes;
}

std::uint64_t Disk::bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [name, file] : files_) bytes += file->data.size();
    return bytes;
}

void Disk::rename(const std::string& from, const std::string& to) {
    if (auto file = files_.extract(from)) files_[to] = std::move(file.mapped());
}

void Disk::flip_bit() {
    for (auto& [name, file] : files_) {
        if (!name.ends_with("state.db") || file->synced.empty()) continue;
        const std::size_t at = world_.draw(file->synced.size());
        const auto bit = static_cast<char>(1u << world_.draw(8));
        file->synced[at] = static_cast<char>(file->synced[at] ^ bit);
        if (at < file->data.size()) file->data[at] = static_cast<char>(file->data[at] ^ bit);
    }
}

void Disk::crash(End end) {
    for (auto& [name, file] : files_) {
        auto left = std::make_shared<File>(*file);
        if (end == End::power_cut) {
            left->data = left->synced;
            for (Write write : left->unsynced) {
                const std::uint64_t fate = world_.draw(3);
                if (fate == 0) continue;
                if (fate == 1 && write.bytes.size() > kSector)
                    write.bytes.resize(kSector * (1 + world_.draw(write.bytes.size() / kSector)));
                left->apply(write, left->data);
            }
            left->synced = left->data;
            left->unsynced.clear();
        }
        file = std::move(left);
    }
    fails_ = false;
}

DiskSystem::DiskSystem(World& world) : vfs_(std::make_unique<sqlite3_vfs>()) {
    the_world = &world;
    before_ = sqlite3_vfs_find(nullptr);
    *vfs_ = *before_;
    vfs_->zName = "simulated";
    vfs_->szOsFile = sizeof(DiskFile);
    vfs_->xOpen = [](sqlite3_vfs*, const char* name, sqlite3_file* opened, int flags, int* out) {
        Disk& disk = current_disk();
        const std::string key = name != nullptr ? name : "";
        auto& file = disk.files_[key];
        if (!file || key.empty()) file = std::make_shared<Disk::File>();
        DiskFile& self = DiskFile::of(opened);
        self.disk = &disk;
        self.file = new std::shared_ptr<Disk::File>(file);
        self.base.pMethods = &DiskFile::kMethods;
        if (out != nullptr) *out = flags;
        return SQLITE_OK;
    };
    vfs_->xDelete = [](sqlite3_vfs*, const char* name, int) {
        current_disk().files_.erase(name);
        return SQLITE_OK;
    };
    vfs_->xAccess = [](sqlite3_vfs*, const char* name, int, int* there) {
        const auto& files = current_disk().files_;
        const auto file = files.find(name);
        *there = file != files.end() && !file->second->data.empty() ? 1 : 0;
        return SQLITE_OK;
    };
    vfs_->xFullPathname = [](sqlite3_vfs*, const char* name, int size, char* out) {
        sqlite3_snprintf(size, out, "%s", name);
        return SQLITE_OK;
    };
    // SQLite keeps its numbers from one world to the next, unless it is told to begin anew.
    vfs_->xRandomness = [](sqlite3_vfs*, int count, char* out) {
        std::fill_n(out, count, '\x5a');
        return count;
    };
    sqlite3_randomness(0, nullptr);
    sqlite3_vfs_register(vfs_.get(), 1);
}

DiskSystem::~DiskSystem() {
    sqlite3_vfs_register(before_, 1);
    sqlite3_vfs_unregister(vfs_.get());
    the_world = nullptr;
}

}  // namespace dtrun::simulation
