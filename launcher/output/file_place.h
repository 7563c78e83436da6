#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <sys/types.h>
#include <expected>
#include <string>
#include <string_view>

namespace dtrun::output {

/// A file by its folder, which is held, and its name there.
struct FilePlace {
    Fd folder;
    std::string name;
};

/// Why a file cannot be there.
struct NoPlace {
    int error = 0;  ///< errno's
    std::string why;
};

/// Where `path` leads from `base`. Links on the way are followed only if they are ours or root's, since those of
/// others may lead to files of ours; and folders have to be ours, root's or of whoever has `base`.
/// \param make  folders that are missing
/// \param us    our user there, which is another where a file server maps users; changed when that is seen
std::expected<FilePlace, NoPlace> place_below(int base, std::string_view path, bool make,
                                              uid_t& us);

/// Opens a file there, made if missing, to append to it. The same holds for links, and of a named pipe no reader is
/// awaited. \return nothing, with errno, if that cannot be; ELOOP: it is another user's link
Fd open_at(const FilePlace& place, int more_flags);

NoPlace no_place(int error);  ///< as open_at() has left it

/// open_at() of a path. Errc: invalid_input, internal; names the path
Result<Fd> open_log_file(const std::string& path);

/// Translates the errno of a failure to make a file or directory: invalid_input where another name would
/// do, internal where the machine has no room.
Errc code_of_file_error(int error);

}  // namespace dtrun::output
