#pragma once

#include "base/fd.h"
#include "rendezvous/wire/output_messages.h"

#include <sys/types.h>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::history {

/// A line of a job's log (plan::Tag::logged), with its end.
struct LogLine {
    std::string_view time{};    ///< "2026-11-21T10:11:12.345"; empty: none of ours
    std::optional<int> rank{};  ///< nothing: dtrun says it, or the process has no number
    bool of_dtrun = true;
    Stream stream = Stream::err;
    std::string_view text;  ///< behind all that
};

LogLine parse_log_line(std::string_view line);

/// The first digits of the id of the job whose first line this is (output::log_begin()); empty: it is none.
std::string_view job_begun_by(const LogLine& line);

/// Reads the log of a job from its begin, however often it has been set aside, and goes on with what is added.
class KeptLog {
public:
    /// \param path  of the file that is written; older ones are PATH.1, PATH.2 and so on
    explicit KeptLog(std::string path) : path_(std::move(path)) {}

    /// The next line with its end; nothing: at present there is none. Valid until the next call.
    std::optional<std::string_view> next();
    /// What stands behind the last line that has an end: nothing is added any more.
    std::optional<std::string_view> rest();

    /// Whether since the last call a file may have been removed before it was read.
    bool take_gap() { return std::exchange(gap_, false); }
    /// Whether there is such a file.
    bool is_open() const { return static_cast<bool>(part_.file); }

private:
    struct FileId {
        dev_t device = 0;
        ino_t inode = 0;  ///< 0: there is no file
        bool operator==(const FileId&) const = default;
    };
    struct Found {
        bool has_read = false;  ///< the file that is read is there
        FileId next{};          ///< the one behind it; the oldest, if it is not there
        int number = 0;         ///< of the next one, when it was seen
    };

    struct Part {
        Fd file{};
        FileId id{};
        bool has_gap = false;  ///< a file before it may have been removed unread
    };

    bool fill();
    void look_ahead();
    bool is_removed() const;
    Found look() const;
    FileId id_of(int number) const;
    std::string name_of(int number) const;

    std::string path_;
    Part part_;   ///< which is read
    Part ahead_;  ///< behind that
    bool gap_ = false;
    std::string buffer_;
    std::size_t at_ = 0;      ///< of `buffer_`: what is before has been taken
    std::size_t looked_ = 0;  ///< up to there is no end of a line
};

}  // namespace dtrun::history
