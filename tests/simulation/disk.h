#pragma once

#include "base/clock.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

struct sqlite3_file;
struct sqlite3_vfs;

namespace dtrun::simulation {

class World;

/// The disk of a machine, as SQLite sees it. What is written is in the system's memory until it is
/// synced: SIGKILL of the writer does it no harm, but of what a power cut finds unsynced each write is
/// there, is not there, or is there in part, sector by sector.
class Disk {
public:
    enum class End { killed, power_cut };

    explicit Disk(World& world) : world_(world) {}

    // What it does now.
    void be_slow(Deadline until, std::chrono::milliseconds sync) {
        slow_until_ = until;
        slow_sync_ = sync;
    }
    void be_full(Deadline until) { full_until_ = until; }
    void fail_next_sync() { fails_ = true; }  ///< with EIO
    void flip_bit();                          ///< somewhere in a database, not in its log
    void heal() { slow_until_ = full_until_ = Deadline{}, fails_ = false; }
    void forget_syncs() { forgets_ = true; }  ///< a disk that lies: for a test of this simulation

    /// What is left for the next program; the one before, if it still runs, has a copy of its own.
    void crash(End end);

    std::uint64_t syncs() const { return syncs_; }
    std::uint64_t free_bytes() const;
    std::uint64_t bytes() const;  ///< of its files
    void rename(const std::string& from, const std::string& to);

private:
    friend struct DiskFile;
    friend class DiskSystem;

    struct Write {
        std::uint64_t at = 0;
        std::string bytes;
        bool truncates = false;  ///< to `at`
    };
    struct File {
        std::string data;             ///< as programs see it
        std::string synced;           ///< as it is on the disk
        std::vector<Write> unsynced;  ///< in order
        void apply(const Write& write, std::string& to) const;
    };

    bool is_full() const;

    World& world_;
    std::map<std::string, std::shared_ptr<File>> files_;
    Deadline slow_until_{};
    std::chrono::milliseconds slow_sync_{};
    Deadline full_until_{};
    bool fails_ = false;
    bool forgets_ = false;
    std::uint64_t syncs_ = 0;
};

/// While it lives, SQLite's files are on the disk of the machine whose program runs.
class DiskSystem {
public:
    explicit DiskSystem(World& world);
    ~DiskSystem();
    DiskSystem(const DiskSystem&) = delete;
    DiskSystem& operator=(const DiskSystem&) = delete;

private:
    std::unique_ptr<sqlite3_vfs> vfs_;
    sqlite3_vfs* before_;
};

}  // namespace dtrun::simulation
