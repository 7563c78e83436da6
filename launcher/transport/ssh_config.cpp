#include "launcher/transport/ssh_config.h"

#include "base/crypto.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/process/command_output.h"
#include "base/strings.h"

#include <glob.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cstdlib>

namespace dtrun::transport {
namespace {

using std::string_view;
using Words = std::vector<std::string>;

constexpr int kDepthMax = 16;  // of files that include each other, as ssh has it
constexpr unsigned kFilesMax = 500;

/// Whether ssh refuses to read a file, since others could have written it.
bool is_foreign(const std::string& file) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) return false;
    const bool is_ours = status.st_uid == 0 || status.st_uid == ::getuid();
    return !is_ours || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

}  // namespace

Result<SshConfig> SshConfig::read(const std::string& file) {
    passwd storage{};
    passwd* entry = nullptr;
    std::array<char, 16'384> texts{};
    ::getpwuid_r(::getuid(), &storage, texts.data(), texts.size(), &entry);
    if (entry == nullptr)
        return fail(
            Errc::invalid_input,
            "no user exists for uid {}: ssh, and so dtrun, needs an entry in passwd to know "
            "who logs in, and where the keys are",
            ::getuid());
    const SshUser user{entry->pw_uid, entry->pw_name, entry->pw_dir};
    const std::vector<std::string> usual{user.home + "/.ssh/config", "/etc/ssh/ssh_config"};
    SshConfig config(user, file.empty() ? usual : std::vector<std::string>{file});
    const char* const path = ::getenv("PATH");
    config.ssh_is_here_ = is_on_path("ssh", path == nullptr ? "" : path);
    return config;
}

SshConfig::SshConfig(SshUser user, const std::vector<std::string>& files) : user_(std::move(user)) {
    for (std::size_t i = 0; i < files.size(); ++i) read_file(files[i], i == 0, 0);
}

void SshConfig::read_file(const std::string& file, bool is_users, int depth) {
    const auto text = dtrun::read_file(file);
    if (!text) return;  // as ssh does
    if (depth > kDepthMax || ++files_ > kFilesMax) {
        broken_ = "files that include each other (" + file + ")";
        return;
    }
    lines_.push_back({SshLine::Kind::file, {}, {}, file, {}});
    std::string mistake;
    if ((is_users || depth > 0) && is_foreign(file)) mistake = "owner or mode of a file";
    if (!mistake.empty()) lines_.push_back({SshLine::Kind::setting, "include", {}, file, mistake});
    unsigned int number = 0;
    for (const string_view whole : split(*text, '\n')) {
        ++number;
        string_view rest = trim(whole);
        while (rest.ends_with('\f')) rest = trim(rest.substr(0, rest.size() - 1));
        if (rest.empty() || rest.front() == '#') continue;
        SshLine line;
        line.place = fmt::format("{}:{}", file, number);
        line.keyword = take_keyword(rest);
        line.rest = rest;
        if (line.rest.empty()) line.mistake = line.keyword + " without a value";
        if (line.keyword.empty()) {  // it may be a Host or Match in quotes
            line.keyword = "host";
            line.mistake = "a keyword in quotes";
        }
        if (rest.find('\0') != string_view::npos) line.mistake = "a zero byte";
        const auto words = words_of(rest);
        if (!words) line.mistake = line.keyword + ": a quote that does not end";
        const bool includes =
            line.keyword == "include" && depth <= kDepthMax && files_ <= kFilesMax;
        Words files;
        if (includes && line.mistake.empty()) files = included(*words, is_users, line.mistake);
        lines_.push_back(std::move(line));
        for (const std::string& next : files) read_file(next, is_users, depth + 1);
    }
    lines_.push_back({SshLine::Kind::end_of_file, {}, {}, file, {}});
}

/// The files that an Include names.
std::vector<std::string> SshConfig::included(const std::vector<std::string>& patterns,
                                             bool is_users, std::string& mistake) const {
    Words files;
    for (std::string pattern : patterns) {
        const bool is_unknown = pattern.find_first_of("%$") != std::string::npos ||
                                (pattern.starts_with('~') && !pattern.starts_with("~/"));
        if (is_unknown) mistake = "include " + pattern;
        if (is_unknown) continue;
        if (!pattern.starts_with('/') && !pattern.starts_with('~'))
            pattern = (is_users ? user_.home + "/.ssh/" : "/etc/ssh/") + pattern;
        glob_t found{};
        if (::glob(pattern.c_str(), GLOB_TILDE, nullptr, &found) == 0)
            files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
        ::globfree(&found);
    }
    return files;
}

std::string SshConfig::digest() const {
    std::string text = fmt::format("{} {}\n{}\n", user_.id, user_.home, broken_);
    for (const SshLine& line : lines_)
        text += fmt::format("{} {} {} {} {}\n", static_cast<int>(line.kind), line.place,
                            line.keyword, line.rest, line.mistake);
    return hex(sha256(text));
}

SshSettings SshConfig::find(const Host& host, const SshOptions& options) const {
    SshSettings settings = settings_for(host, options, user_, lines_);
    settings.ssh_is_here = ssh_is_here_;
    if (!broken_.empty()) settings.only_ssh = broken_;
    return settings;
}

}  // namespace dtrun::transport
