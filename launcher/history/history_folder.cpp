#include "launcher/history/history_folder.h"

#include "base/fd.h"
#include "base/strings.h"
#include "launcher/control/control_place.h"
#include "launcher/output/path_pattern.h"
#include "launcher/watch/event.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

namespace dtrun::history {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRecordBytesMax = 512u << 10;
constexpr std::size_t kTimeChars = 19;  // "20261128-003012.250"
constexpr std::size_t kJobsNamed = 8;   // in a message
constexpr std::int64_t kNsPerSecond = 1'000'000'000;
/// Of another machine it is not known whether its job runs; no job runs for so long.
constexpr std::int64_t kAgeOfAnyJob = 366LL * 24 * 3600 * kNsPerSecond;

/// "20261128-003012.250", UTC.
std::string time_text(std::int64_t time_ns) {
    std::string text = watch::utc_time(time_ns);  // "2026-11-28T00:30:12.250000Z"
    text.resize(text.find('.') + 4);
    std::erase_if(text, [](char c) { return c == '-' || c == ':'; });
    std::ranges::replace(text, 'T', '-');
    return text;
}

/// The stem of a file that is ours, "…​.log.1" included; empty: it is another's.
std::string_view stem_in(std::string_view name) {
    const std::size_t end = name.find('.', kTimeChars);
    if (name.size() <= kTimeChars || end == std::string_view::npos) return {};
    const std::string_view suffix = name.substr(end);
    const bool is_ours = suffix == kRecordSuffix || suffix.starts_with(kLogSuffix);
    const bool has_time =
        name[8] == '-' && name[15] == '.' && name[kTimeChars] == '-' &&
        std::ranges::all_of(name.substr(0, 8), [](char c) { return c >= '0' && c <= '9'; });
    return is_ours && has_time ? name.substr(0, end) : std::string_view();
}

/// What lies in the folder of one job.
struct Files {
    bool has_record = false;
    std::vector<std::string> names{};  ///< of all its files
};

/// By their stems, and so in the order of their times.
std::map<std::string, Files> files_in(const std::string& folder) {
    std::map<std::string, Files> found;
    std::error_code none;
    for (auto entry = fs::directory_iterator(folder, none);
         !none && entry != fs::directory_iterator(); entry.increment(none)) {
        const std::string name = entry->path().filename().string();
        const std::string_view stem = stem_in(name);
        if (stem.empty()) continue;
        Files& files = found[std::string(stem)];
        files.has_record = files.has_record || name.ends_with(kRecordSuffix);
        files.names.push_back(name);
    }
    return found;
}

std::optional<JobEntry> read_record(const std::string& folder, const std::string& stem) {
    const std::string path = fmt::format("{}/{}{}", folder, stem, kRecordSuffix);
    std::error_code none;
    if (!fs::is_regular_file(fs::symlink_status(path, none))) return std::nullopt;
    const auto text = read_file(path, kRecordBytesMax);
    auto entry = text ? parse_entry(*text) : std::nullopt;
    if (entry) entry->path = path;
    return entry;
}

std::uint64_t bytes_of(const std::string& folder, const Files& files) {
    std::uint64_t bytes = 0;
    for (const std::string& name : files.names) {
        struct stat info {};
        if (::lstat((folder + "/" + name).c_str(), &info) == 0)
            bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
    return bytes;
}

bool may_run(const std::string& folder, const std::string& stem, const ProcessMark& here,
             std::int64_t now_ns) {
    const auto entry = read_record(folder, stem);
    if (!entry || entry->end) return false;
    const Life life = life_of(entry->start.head, here);
    return life == Life::runs ||
           (life == Life::unknown && now_ns - entry->start.time_ns < kAgeOfAnyJob);
}

void remove(const std::string& folder, const Files& files) {
    std::error_code none;
    for (const std::string& name : files.names) fs::remove(folder + "/" + name, none);
}

/// root with somebody else's HOME, as of sudo -E, would leave a folder there that its owner cannot enter.
Result<void> check_home(const std::string& folder) {
    if (::geteuid() != 0) return {};
    fs::path existing = folder;
    struct stat info {};
    while (::lstat(existing.c_str(), &info) != 0 && existing.has_relative_path())
        existing = existing.parent_path();
    if (info.st_uid == 0) return {};
    return fail(Errc::denied, "{}: belongs to user {}", existing.string(), info.st_uid);
}

std::string list_of(const std::vector<JobEntry>& entries) {
    std::vector<std::string> names;
    for (const JobEntry& entry : entries)
        names.push_back(entry.start.job.substr(0, output::kJobDigits));
    return join_names(names, kJobsNamed);
}

}  // namespace

std::string history_folder(std::string_view state_home, std::string_view home) {
    if (state_home.starts_with('/')) return std::string(state_home) + "/dtrun/jobs";
    if (home.starts_with('/'))
        return std::string(home == "/" ? "" : home) + "/.local/state/dtrun/jobs";
    return {};
}

Result<void> make_history_folder(const std::string& folder) {
    if (control::make_private_folder(folder)) return {};
    if (auto checked = check_home(folder); !checked) return checked;
    std::error_code error;
    fs::create_directories(fs::path(folder).parent_path(), error);
    if (error) return fail(Errc::internal, "{}: {}", folder, error.message());
    return control::make_private_folder(folder);
}

std::string why_none_is_kept(const std::string& folder) {
    std::error_code none;
    fs::path existing = folder;
    while (!fs::exists(existing, none) && existing.has_relative_path())
        existing = existing.parent_path();
    if (folder.empty() || ::access(existing.c_str(), W_OK) == 0) return {};
    return fmt::format("; none can be kept in {}: {}", folder, std::strerror(errno));
}

std::string stem_of(std::string_view job, std::int64_t time_ns) {
    return fmt::format("{}-{}", time_text(time_ns), job);
}

std::vector<JobEntry> read_history(const std::string& folder, std::size_t newest_max) {
    std::vector<JobEntry> entries;
    const auto found = files_in(folder);
    for (auto each = found.rbegin(); each != found.rend() && entries.size() < newest_max; ++each)
        if (auto entry = each->second.has_record ? read_record(folder, each->first) : std::nullopt)
            entries.push_back(std::move(*entry));
    return entries;
}

Result<JobEntry> find_entry(const std::string& folder, std::string_view word) {
    std::vector<JobEntry> meant;
    const auto found = files_in(folder);
    for (auto each = found.rbegin(); each != found.rend(); ++each) {
        if (!each->second.has_record) continue;
        auto entry = read_record(folder, each->first);
        if (!entry) continue;
        const bool is_named = !word.empty() && entry->start.name == word;
        if (word.empty() || is_named || entry->start.job == word) return std::move(*entry);
        if (entry->start.job.starts_with(word)) meant.push_back(std::move(*entry));
    }
    if (meant.size() == 1) return std::move(meant.front());
    if (meant.empty() && word.empty())
        return fail(Errc::invalid_input, "no job of yours has left a record in {}{}", folder,
                    why_none_is_kept(folder));
    if (meant.empty())
        return fail(Errc::invalid_input,
                    "no job '{}' of yours is known; `dtrun jobs --all` lists them", word);
    return fail(Errc::invalid_input, "several jobs begin with '{}'; say which: {}", word,
                list_of(meant));
}

Life settle(JobEntry& entry, const ProcessMark& here) {
    const Life life = life_of(entry.start.head, here);
    if (entry.end) return life;
    const auto text = read_file(entry.path, kRecordBytesMax);
    auto now = text ? parse_entry(*text) : std::nullopt;
    if (now) entry.end = std::move(now->end);
    return life;
}

void tidy(const std::string& folder, const Bounds& bounds, std::int64_t now_ns) {
    const auto found = files_in(folder);
    const ProcessMark here = mark_of_this_process();
    const std::string oldest = time_text(now_ns - bounds.age_max_ns);
    std::size_t records = 0;
    std::uint64_t bytes = 0;
    // From the newest on, what is kept is counted.
    for (auto each = found.rbegin(); each != found.rend(); ++each) {
        const auto& [stem, files] = *each;
        const std::uint64_t own = bytes_of(folder, files);
        const bool fits =
            stem > oldest && records < bounds.records_max && bytes + own <= bounds.bytes_max;
        if (!fits && !may_run(folder, stem, here, now_ns)) {
            remove(folder, files);
            continue;
        }
        ++records;
        bytes += own;
    }
}

}  // namespace dtrun::history
