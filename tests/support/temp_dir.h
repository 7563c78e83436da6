#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>

namespace dtrun {

/// A directory that is removed with everything in it.
class TempDir {
public:
    TempDir() {
        path_ = (std::filesystem::temp_directory_path() / "dtrun-test-XXXXXX").string();
        if (::mkdtemp(path_.data()) == nullptr) std::abort();
    }
    ~TempDir() { std::filesystem::remove_all(path_); }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    const std::string& path() const { return path_; }
    /// Writes a file and returns its path.
    std::string write(const std::string& name, const std::string& text, mode_t mode = 0644) const {
        const std::string file = path_ + "/" + name;
        std::ofstream(file) << text;
        ::chmod(file.c_str(), mode);
        return file;
    }

private:
    std::string path_;
};

}  // namespace dtrun
