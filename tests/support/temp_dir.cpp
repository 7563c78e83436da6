#include "tests/support/temp_dir.h"

#include <sys/stat.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace dtrun {

TempDir::TempDir() {
    path_ = (std::filesystem::temp_directory_path() / "dtrun-test-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
}

TempDir::~TempDir() {
    std::filesystem::remove_all(path_);
}

std::string TempDir::write(const std::string& name, const std::string& text, mode_t mode) const {
    const std::string file = path_ + "/" + name;
    std::ofstream(file) << text;
    ::chmod(file.c_str(), mode);
    return file;
}

}  // namespace dtrun
