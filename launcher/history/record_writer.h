#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "base/threads.h"
#include "launcher/history/job_entry.h"

#include <memory>
#include <string>

namespace dtrun::history {

/// The record of a job, in a file of its own. Whatever the folder's file system does, the job does not wait for it:
/// it is written by a thread, which is left behind if a call does not return.
class RecordWriter {
public:
    /// Begins to write how the job has begun. \param start  without its `head`, that is this process
    /// \param tidies  and removes old records
    RecordWriter(std::string folder, JobStart start, bool tidies);

    ~RecordWriter();
    RecordWriter(const RecordWriter&) = delete;
    RecordWriter& operator=(const RecordWriter&) = delete;

    /// Whether that is written. Errc: timed_out, denied, internal; names the path
    Result<void> written(Deadline deadline);
    /// Writes how it has ended. Errc: as written(), which then says why there is no record
    Result<void> finish(const JobEnd& end, Deadline deadline);

private:
    class File;

    std::shared_ptr<File> file_;
    Thread thread_;
};

}  // namespace dtrun::history
