#include "base/code_trust.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace dtrun {
namespace {

namespace fs = std::filesystem;

/// Whether nobody but the user is in a group, which then has their name: where each user has one, folders are made for
/// it to write to (umask 002).
bool is_own_group(gid_t group, uid_t user) {
    std::array<char, 16'384> room, more_room;
    passwd person{};
    passwd* known = nullptr;
    if (::getpwuid_r(user, &person, room.data(), room.size(), &known) != 0 || known == nullptr)
        return false;
    struct group persons {};
    struct group* found = nullptr;
    if (person.pw_gid != group ||
        ::getgrgid_r(group, &persons, more_room.data(), more_room.size(), &found) != 0 ||
        found == nullptr || std::string_view(persons.gr_name) != person.pw_name)
        return false;
    for (char** member = persons.gr_mem; *member != nullptr; ++member)
        if (std::string_view(*member) != person.pw_name) return false;
    return true;
}

/// Of one file or folder. \param above  it is a folder above that of the code
Result<void> check_unwritable(const fs::path& path, uid_t user, bool above) {
    struct stat file {};
    if (::stat(path.c_str(), &file) != 0)
        return fail(Errc::not_found, "{}: {}", path.string(), std::strerror(errno));
    if (file.st_uid != 0 && file.st_uid != user)
        return fail(Errc::denied, "{} belongs to somebody else, user {}", path.string(),
                    file.st_uid);
    const bool all = (file.st_mode & S_IWOTH) != 0, group = (file.st_mode & S_IWGRP) != 0;
    if ((!all && !group) || (above && (file.st_mode & S_ISVTX) != 0)) return {};
    if (!all && is_own_group(file.st_gid, user)) return {};
    return fail(Errc::denied, "others can write to {0}: chmod go-w {0}", path.string());
}

}  // namespace

Result<fs::path> check_code(const fs::path& path, uid_t user) {
    std::error_code gone;
    fs::path real = fs::canonical(path, gone);
    if (gone) return fail(Errc::not_found, "{}: {}", path.string(), gone.message());
    // Whoever can change a link on the way decides, too; of the places that links lead to, the last one is loaded.
    for (const fs::path& way : {real, path}) {
        auto checked = check_unwritable(way, user, false);
        bool above = false;
        for (fs::path folder = way; checked && folder.has_relative_path(); above = true) {
            folder = folder.parent_path();
            checked = check_unwritable(folder, user, above);
        }
        if (!checked) return std::unexpected(checked.error());
    }
    return real;
}

}  // namespace dtrun
