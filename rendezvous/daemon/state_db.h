#pragma once

#include "base/clock.h"
#include "base/ids.h"
#include "base/numbered.h"
#include "base/result.h"
#include "rendezvous/daemon/state_damage.h"
#include "rendezvous/daemon/state_writer.h"
#include "rendezvous/exchange/hub.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrun {

/// How much of the time that it has served a daemon that is killed may forget, and how much of that since a job was used:
/// what is written all the time keeps disks awake.
inline constexpr std::chrono::minutes kServedStep{60};
/// How much later than it is written down a job may have been used: a use half a step after the one before is not written.
inline constexpr std::chrono::minutes kUseUnknown = kServedStep * 3 / 2;

/// What a restarted daemon must know of a job to continue it.
struct SavedJob {
    JobId id{};
    std::string name;
    // Of its members, as ServedJob has packed it; without a policy it is only a store.
    Bytes policy;
    Bytes job;
    std::vector<Bytes> hosts;
    std::map<MemberId, Bytes> members;
    /// When somebody was last connected to it; see StateDb::served().
    std::chrono::seconds used{0};
};

/// A daemon's state on disk, in SQLite's write-ahead log: uncommitted changes are lost in a crash,
/// and a torn end is dropped. What a killed daemon had written is there, but may not be on the disk
/// yet: opening the state puts it there, before anybody is told of it.
///
/// The loop records changes, and a thread writes them: a slow disk delays only frames that depend
/// on it. The changes of one submit() become durable as a whole, as do all submitted while the disk
/// was busy. While the disk, or the user's quota, is full recorded changes wait; any other failure ends
/// the process, since no change could be kept any more.
///
/// Thread: one. Lifetime: objects that `on_durable` uses outlive it. The destructor waits for the disk, for a while.
class StateDb {
public:
    using Use = StateWriter::Use;
    /// Opens or makes DIR/state.db; only one process can have it.
    /// Errc: denied, invalid_input (made by a version that this one does not know), internal
    static Result<std::unique_ptr<StateDb>> open(const std::string& directory,
                                                 Use use = Use::to_serve);
    ~StateDb();
    StateDb(const StateDb&) = delete;
    StateDb& operator=(const StateDb&) = delete;

    // Reading what is on disk; allowed only while nothing is being written.
    std::vector<SavedJob> jobs();
    /// Jobs of which nothing is left but that they were there, until they are dropped.
    std::vector<DamagedJob> damaged();
    /// Gives a hub back its store, answers and fences.
    void restore(const JobId& job, Hub& hub, Deadline now);

    // Recording changes.
    void save_job(const SavedJob& record);  ///< writes only members that have changed
    void drop_job(const JobId& job);
    /// The journal for a job's hub.
    std::unique_ptr<HubJournal> journal(const JobId& job);
    /// For how long daemons have served this state, all together: a clock that nobody sets, and that stands still while
    /// there is none. After a crash it goes on from what was last written.
    std::chrono::seconds served() const;
    /// Records it, if it has grown by `step`. \return whether it has
    bool write_served(std::chrono::seconds step);
    /// No job that is here, or has been, was given a larger revision.
    std::uint64_t reserved() const { return reserved_; }
    /// Records that this revision may have been given.
    void reserve(std::uint64_t revision);

    /// Hands the recorded changes to the thread, as a batch. \return the batch's number, from 1
    std::uint64_t submit();
    std::uint64_t submitted() const { return submitted_; }
    /// Number of the last batch that is on disk.
    std::uint64_t durable() const { return writer_->durable(); }
    /// \param on_durable  called by the thread whenever durable() has grown
    void notify(std::function<void()> on_durable) { writer_->notify(std::move(on_durable)); }
    void commit();  ///< submits, and waits until it is durable
    /// Waits until what was submitted is durable and the file closed; there are no calls of `on_durable` any more.
    /// \return false: not all is: the disk is full, or does not answer and is left behind
    bool stop(Deadline deadline) { return writer_->stop(deadline); }

    /// How long commits took, since it was opened, and of these their writing and syncing.
    const Durations& commits() const { return writer_->commits(); }
    const Durations& fsyncs() const { return writer_->fsyncs(); }

    /// Whether the disk has room for so many more bytes, including copies and unwritten changes, as far as it was
    /// last looked at.
    bool fits(std::size_t bytes) const;
    /// How long the disk has been at what it writes; 0: it writes nothing.
    Clock::duration writing_for() const;
    /// Whether its file was removed while it was open: what is written from then on is lost.
    bool is_removed() const { return writer_->is_removed(); }
    /// Whether so many bytes are unwritten that no more should be recorded.
    bool is_behind() const;
    /// Tells the log when the disk has become slow or full, and when it is well again, and has it looked at. To be
    /// called now and then.
    void tell_of_disk();

private:
    friend class StateJournal;

    StateDb(std::shared_ptr<StateWriter> writer, std::string directory)
        : writer_(std::move(writer)), directory_(std::move(directory)) {}
    /// Records a statement.
    template <class... Values>
    void run(const char* sql, const Values&... values);
    void forget_generation(const JobId& job);

    const std::shared_ptr<StateWriter> writer_;
    std::string directory_;
    StateWriter::Batch batch_;
    std::uint64_t submitted_ = 0;
    std::uint64_t reserved_ = 0;
    Deadline opened_ = Clock::now();
    std::chrono::seconds served_before_{0};  ///< it was opened
    std::chrono::seconds served_written_{0};
    std::map<JobId, SavedJob> recorded_;  ///< what was last recorded, to find changes
    std::optional<Deadline> told_slow_;   ///< since when it is
    bool told_full_ = false;
    bool told_removed_ = false;
};

}  // namespace dtrun
