#include "launcher/output/rank_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <iterator>

namespace dtrun::output {
namespace {

/// In Written::stream, of pieces in the queue that are no bytes of a stream: files of another attempt begin here,
/// Written::bytes attempts later; there are more ranks, for which take_more() has to be called.
constexpr std::uint32_t kNextAttempt = UINT32_MAX, kMoreRanks = UINT32_MAX - 1;

namespace fs = std::filesystem;

/// `prefix` and digits.
bool is_numbered(const std::string& name, std::string_view prefix) {
    const std::string_view number =
        name.starts_with(prefix) ? std::string_view(name).substr(prefix.size()) : "";
    return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_type(const fs::directory_entry& entry, fs::file_type type) {
    std::error_code none;
    return entry.symlink_status(none).type() == type;
}

/// What is in the folder of a restart, files before their folders, and that folder at last. Empty:
/// there is something that dtrun has not put there.
std::vector<fs::path> files_of_attempt(const fs::path& folder) {
    std::vector<fs::path> paths;
    std::error_code error;
    for (const fs::directory_entry& rank : fs::directory_iterator(folder, error)) {
        if (!is_numbered(rank.path().filename(), "rank.") ||
            !is_type(rank, fs::file_type::directory))
            return {};
        for (const fs::directory_entry& file : fs::directory_iterator(rank.path(), error)) {
            const std::string name = file.path().filename();
            const bool of_rank = name == "stdout" || name == "stderr" ||
                                 is_numbered(name, "stdout.") || is_numbered(name, "stderr.");
            if (!of_rank || !is_type(file, fs::file_type::regular)) return {};
            paths.push_back(file.path());
        }
        paths.push_back(rank.path());
    }
    if (error) return {};
    paths.push_back(folder);
    return paths;
}

}  // namespace

Result<void> make_directory(const std::string& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error)
        return fail(code_of_file_error(error.value()), "{}: {}", path, strerror(error.value()));
    return {};
}

Result<void> remove_attempts(const std::string& directory) {
    std::vector<fs::path> old;
    std::error_code error;  // ignored: a directory that is not there has no attempts
    for (const fs::directory_entry& entry : fs::directory_iterator(directory, error))
        if (is_numbered(entry.path().filename(), "attempt_") &&
            is_type(entry, fs::file_type::directory))
            std::ranges::move(files_of_attempt(entry.path()), std::back_inserter(old));
    for (const fs::path& path : old)
        if (!fs::remove(path, error) && error)
            return fail(code_of_file_error(error.value()), "{}: {}", path.string(),
                        strerror(error.value()));
    return {};
}

std::string rank_directory(plan::SlotId rank, int world_size) {
    const auto width = fmt::formatted_size("{}", world_size - 1);
    return fmt::format("rank.{:0{}}", std::to_underlying(rank), width);
}

RankFileName plain_file_names(int world_size) {
    return [world_size](std::size_t stream, int attempt) {
        const std::string folder = attempt == 0 ? "" : fmt::format("attempt_{}/", attempt);
        return fmt::format("{}{}/{}", folder, rank_directory(rank_of(stream), world_size),
                           stream_of(stream) == Stream::out ? "stdout" : "stderr");
    };
}

Result<Running<RankFiles>> RankFiles::create(std::string directory, RankFileName name,
                                             int world_size, std::size_t open_max,
                                             Rotation rotation, BufferQueue::Options options,
                                             WrittenFunction taken) {
    std::shared_ptr<RankFiles> files(new RankFiles(std::move(directory), std::move(name),
                                                   world_size, open_max, rotation, options,
                                                   std::move(taken)));
    choose_files(files->names_, files->uses_, 0);
    files->added_names_ = files->names_;
    files->added_uses_ = files->uses_;
    if (const auto made = files->make_files(0); !made) return std::unexpected(made.error());
    return Running<RankFiles>(std::move(files));
}

RankFiles::RankFiles(std::string directory, RankFileName name, int world_size, std::size_t open_max,
                     Rotation rotation, BufferQueue::Options options, WrittenFunction taken)
    : Sink(std::move(directory), "too slow", options, std::move(taken)),
      open_max_(std::max<std::size_t>(open_max, 1)),
      rotation_(rotation),
      names_(std::move(name)),
      uses_(stream_count(world_size)),
      files_(uses_.size()) {}

/// \param first  the first stream that is new; those of a rank come together
void RankFiles::choose_files(const RankFileName& name, std::vector<Use>& uses, std::size_t first) {
    std::string before;  // the name of the stream before
    for (std::size_t stream = first; stream < uses.size(); stream++) {
        std::string own = name(stream, 0);
        const bool shared = stream_of(stream) == Stream::err && own == before;
        uses[stream] = own.empty() ? Use::none : shared ? Use::of_stdout : Use::own;
        before = std::move(own);
    }
}

/// Makes the files of this attempt from one stream on, all empty.
Result<void> RankFiles::make_files(std::size_t first) {
    if (const auto made = make_directory(name_); !made) return made;
    directory_.reset(::open(name_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!directory_) return fail(code_of_file_error(errno), "{}: {}", name_, strerror(errno));
    for (std::size_t stream = first; stream < files_.size(); stream++) {
        if (uses_[stream] != Use::own) continue;
        if (auto opened = open(stream, O_TRUNC); !opened)
            return fail(opened.error(), "{}", path(stream));
        files_[stream].fill = {};
        if (const auto at = place(stream, false)) remove_set_aside(at->folder.get(), at->name);
    }
    return {};
}

bool RankFiles::has_file(plan::SlotId rank, Stream stream) const {
    return added_uses_[stream_index(rank, stream)] != Use::none;
}

std::size_t RankFiles::file_of(std::size_t stream) const {
    return uses_[stream] == Use::of_stdout ? stream - 1 : stream;
}

std::string RankFiles::path(std::size_t file) const {
    return name_ + "/" + names_(file, attempt_);
}

std::expected<FilePlace, NoPlace> RankFiles::place(std::size_t file, bool make) {
    return place_below(directory_.get(), names_(file, attempt_), make, us_);
}

/// \return why not. Errc: internal, invalid_input
Result<void> RankFiles::open(std::size_t file, int flags) {
    if (files_[file].fd) return {};
    if (open_files_.size() == open_max_) close_oldest();
    NoPlace none;
    do {
        const auto at = place(file, true);
        if (at) files_[file].fd = open_at(*at, flags);
        none = at ? no_place(errno) : at.error();
    } while (!files_[file].fd && (none.error == EMFILE || none.error == ENFILE) && close_oldest());
    if (!files_[file].fd) return fail(code_of_file_error(none.error), "{}", none.why);
    open_files_.push_back(file);
    return {};
}

/// \return false if none is open
bool RankFiles::close_oldest() {
    if (open_files_.empty()) return false;
    files_[open_files_.front()].fd.reset();
    open_files_.pop_front();
    return true;
}

void RankFiles::close(std::size_t file) {
    if (!files_[file].fd) return;
    files_[file].fd.reset();
    std::erase(open_files_, file);
}

void RankFiles::add(plan::SlotId rank, Stream stream, std::string_view bytes) {
    const auto index = static_cast<std::uint32_t>(stream_index(rank, stream));
    BufferQueue::Filler out(queue());
    while (!bytes.empty()) {
        const std::size_t written = out.write_some(bytes);
        out.account(index, written);
        bytes.remove_prefix(written);
    }
}

void RankFiles::begin_attempt(int attempt) {
    BufferQueue::Filler out(queue());
    out.account(kNextAttempt, static_cast<std::size_t>(attempt - added_attempt_));
    added_attempt_ = attempt;
}

void RankFiles::add_ranks(int count, RankFileName name) {
    const std::size_t before = added_uses_.size();
    added_uses_.resize(before + stream_count(count));
    if (name) added_names_ = std::move(name);
    choose_files(added_names_, added_uses_, before);
    {
        const std::lock_guard lock(mutex_);
        more_.push_back({count, added_names_});
    }
    BufferQueue::Filler out(queue());
    out.account(kMoreRanks, 1);
}

/// Makes room, and files, for ranks that have been added.
void RankFiles::take_more() {
    More more;
    {
        const std::lock_guard lock(mutex_);
        more = std::move(more_.front());
        more_.pop_front();
    }
    names_ = std::move(more.name);
    const std::size_t before = uses_.size();
    uses_.resize(before + stream_count(more.count));
    files_.resize(uses_.size());
    choose_files(names_, uses_, before);
    const auto made = make_files(before);
    if (made) return;
    for (std::size_t file = before; file < files_.size(); ++file) files_[file].failed = true;
    add_failure(made.error());
}

void RankFiles::write_out(BufferQueue::Buffer& buffer) {
    if (is_late())
        unwritten_bytes_ += buffer.size;
    else
        write_pieces(buffer);
    std::erase_if(buffer.pieces, [](const Written& piece) { return piece.stream >= kMoreRanks; });
}

/// Writes the pieces of a buffer, which lie in it one after the other; between them may be those that are no
/// bytes.
void RankFiles::write_pieces(const BufferQueue::Buffer& buffer) {
    const char* at = buffer.data.get();
    segments_.clear();
    for (const Written& piece : buffer.pieces) {
        if (piece.stream == kNextAttempt) {
            write_segments();
            switch_attempt(piece.bytes);
            continue;
        }
        if (piece.stream == kMoreRanks) {
            write_segments();
            for (std::size_t i = 0; i < piece.bytes; ++i) take_more();
            continue;
        }
        segments_.push_back({file_of(piece.stream), {at, piece.bytes}});
        at += piece.bytes;
    }
    write_segments();
}

/// Writes the segments of each file in one go.
void RankFiles::write_segments() {
    std::ranges::sort(segments_, [](const Segment& a, const Segment& b) {
        if (a.file != b.file) return a.file < b.file;
        return a.bytes.data() < b.bytes.data();
    });
    const Segment* const end = segments_.data() + segments_.size();
    for (const Segment* begin = segments_.data(); begin != end;) {
        const Segment* next = begin;
        while (next != end && next->file == begin->file) next++;
        if (!files_[begin->file].failed) write_file(begin->file, begin, next);
        begin = next;
    }
    segments_.clear();
}

void RankFiles::switch_attempt(std::size_t steps) {
    while (close_oldest()) {
    }
    attempt_ += static_cast<int>(steps);
    for (File& file : files_) file.failed = false;
    const auto made = make_files(0);
    if (made) return;
    for (File& file : files_) file.failed = true;
    add_failure({made.error().code,
                 made.error().message + fmt::format("; attempt {} has no files", attempt_)});
}

void RankFiles::write_file(std::size_t file, const Segment* begin, const Segment* end) {
    std::uint64_t bytes = 0;
    for (const Segment* part = begin; part != end; part++) bytes += part->bytes.size();
    Result<void> written;
    if (rotation_.bytes_max == 0 || files_[file].fill.bytes + bytes <= rotation_.bytes_max)
        written = write_whole(file, begin, end);
    else
        for (const Segment* part = begin; part != end && written; part++)
            written = write_rotating(file, *part);
    if (!written) give_up(file, written.error().message);
}

Result<void> RankFiles::write_whole(std::size_t file, const Segment* begin, const Segment* end) {
    if (auto opened = open(file, 0); !opened)
        return fail(Errc::internal, "{}", opened.error().message);
    std::size_t skip = 0;  // bytes of *begin that have been written
    while (begin != end) {
        iovec parts[64];
        int count = 0;
        for (const Segment* part = begin; part != end && count < 64; part++, count++)
            parts[count] = {const_cast<char*>(part->bytes.data()), part->bytes.size()};
        parts[0].iov_base = static_cast<char*>(parts[0].iov_base) + skip;
        parts[0].iov_len -= skip;
        const ssize_t n = ::writev(files_[file].fd.get(), parts, count);
        if (n < 0 && errno != EINTR) return fail(Errc::internal, "{}", strerror(errno));
        skip += n > 0 ? static_cast<std::size_t>(n) : 0;
        while (begin != end && skip >= begin->bytes.size()) {
            files_[file].fill.add(begin->bytes);
            skip -= (begin++)->bytes.size();
        }
    }
    return {};
}

/// Writes what belongs into the file, sets that aside, and goes on with the next.
Result<void> RankFiles::write_rotating(std::size_t file, const Segment& segment) {
    std::string_view rest = segment.bytes;
    while (!rest.empty()) {
        const Segment part{
            file, rest.substr(0, part_that_fits(rest, files_[file].fill, rotation_.bytes_max))};
        if (auto written = write_whole(file, &part, &part + 1); !written) return written;
        rest.remove_prefix(part.bytes.size());
        if (rest.empty()) break;
        close(file);
        const auto at = place(file, false);
        if (!at) return fail(Errc::internal, "{}", at.error().why);
        if (auto aside = set_aside(at->folder.get(), at->name, rotation_.keep); !aside)
            return aside;
        files_[file].fill = {};
    }
    return {};
}

void RankFiles::give_up(std::size_t file, std::string_view why) {
    files_[file].failed = true;
    add_failure({Errc::internal, fmt::format("{}: {}; it is not complete", path(file), why)});
}

}  // namespace dtrun::output
