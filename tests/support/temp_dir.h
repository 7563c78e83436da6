#pragma once

#include <sys/types.h>
#include <string>

namespace dtrun {

/// A directory that is removed with everything in it.
class TempDir {
public:
    TempDir();
    ~TempDir();
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    const std::string& path() const { return path_; }
    std::string at(const std::string& name) const { return path_ + "/" + name; }
    /// Writes a file and returns its path.
    std::string write(const std::string& name, const std::string& text, mode_t mode = 0644) const;

private:
    std::string path_;
};

}  // namespace dtrun
