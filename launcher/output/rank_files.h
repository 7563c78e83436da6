#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "launcher/output/file_place.h"
#include "launcher/output/rank_file_name.h"
#include "launcher/output/rotation.h"
#include "launcher/output/sink.h"
#include "launcher/plan/slot_id.h"
#include "rendezvous/wire/output_messages.h"

#include <unistd.h>
#include <deque>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::output {

/// "rank.07": zero padded to the width of the highest rank.
std::string rank_directory(plan::SlotId rank, int world_size);

/// rank.N/stdout and rank.N/stderr; of a restart, the same below attempt_N.
RankFileName plain_file_names(int world_size);

/// Removes the folders attempt_N in `directory` that hold nothing but files of that form: those of
/// a job before, which would look like restarts of the next one.
/// Errc: invalid_input, internal; names the path
Result<void> remove_attempts(const std::string& directory);

/// Makes a directory and those above it. Errc: invalid_input, internal; names the path
Result<void> make_directory(const std::string& path);

/// The ranks' bytes as they came, in a file for each stream, written on a thread of their own so
/// that a slow disk keeps nobody else waiting.
///
/// A file that grows beyond the limit of the Rotation is set aside.
///
/// What others have put into the directory does not lead anywhere else (file_place.h).
///
/// At most `open_max` files are open at a time, so thousands of ranks need no higher limit of
/// descriptors. A file that fails gets nothing more, and what was meant for it counts as taken.
///
/// Thread: one, except take_failure().
class RankFiles final : public Sink {
public:
    /// Makes all directories and empty files. Errc: invalid_input, internal; names the path
    static Result<Running<RankFiles>> create(std::string directory, RankFileName name,
                                             int world_size, std::size_t open_max,
                                             Rotation rotation, BufferQueue::Options options,
                                             WrittenFunction taken);

    bool has_file(plan::SlotId rank, Stream stream) const;

    /// \param stream  one that has a file
    void add(plan::SlotId rank, Stream stream, std::string_view bytes);

    /// What is added from now on goes to files of their own, which are made empty.
    /// \param attempt  greater than any before; the first files are those of 0
    void begin_attempt(int attempt);

    /// There are more ranks from now on: their files are made when bytes that are added later are written.
    /// \param name  of all files; those that were there keep the names that they have. Empty: as before
    void add_ranks(int count, RankFileName name);

    bool idle() const { return queue().idle(); }

private:
    enum class Use : std::uint8_t { none, own, of_stdout };
    struct File {
        Fd fd;
        Fill fill;
        bool failed = false;
    };
    struct Segment {
        std::size_t file;
        std::string_view bytes;
    };

    RankFiles(std::string directory, RankFileName name, int world_size, std::size_t open_max,
              Rotation rotation, BufferQueue::Options options, WrittenFunction taken);
    static void choose_files(const RankFileName& name, std::vector<Use>& uses, std::size_t first);
    Result<void> make_files(std::size_t first);
    void take_more();
    std::size_t file_of(std::size_t stream) const;
    std::string path(std::size_t file) const;
    std::expected<FilePlace, NoPlace> place(std::size_t file, bool make);
    Result<void> open(std::size_t file, int flags);
    bool close_oldest();
    void close(std::size_t file);
    void write_out(BufferQueue::Buffer& buffer) override;
    void write_pieces(const BufferQueue::Buffer& buffer);
    void write_segments();
    void write_file(std::size_t file, const Segment* begin, const Segment* end);
    Result<void> write_whole(std::size_t file, const Segment* begin, const Segment* end);
    Result<void> write_rotating(std::size_t file, const Segment& segment);
    void switch_attempt(std::size_t steps);
    void give_up(std::size_t file, std::string_view why);

    const std::size_t open_max_;
    const Rotation rotation_;
    RankFileName added_names_;     // of what is added now, as the rest
    std::vector<Use> added_uses_;  // by stream_index()
    int added_attempt_ = 0;

    // The thread's own once it runs.
    RankFileName names_;
    Fd directory_;
    uid_t us_ = ::geteuid();  // there
    std::vector<Use> uses_;   // by stream_index()
    int attempt_ = 0;
    std::vector<File> files_;             // by stream_index() of the first stream that has it
    std::deque<std::size_t> open_files_;  // longest open first
    std::vector<Segment> segments_;

    struct More {
        int count = 0;
        RankFileName name;
    };
    std::deque<More> more_;  // guarded by mutex_; each has a piece in the queue
};

}  // namespace dtrun::output
