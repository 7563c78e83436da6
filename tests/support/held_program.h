#pragma once

#include "base/fd.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <csignal>
#include <string>

namespace dtrun {

/// A program that cannot be opened, nor executed, for as long as this lives.
class HeldProgram {
public:
    /// \param program  of which it is a copy
    explicit HeldProgram(const TempDir& dir, const char* program = "/bin/true")
        : path(dir.write("held", read_file(program).value(), 0755)),
          file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        ::signal(SIGIO, SIG_IGN);  // which asks us to let go
        REQUIRE(::fcntl(file_.get(), F_SETLEASE, F_WRLCK) == 0);
    }
    ~HeldProgram() { ::fcntl(file_.get(), F_SETLEASE, F_UNLCK); }
    const std::string path;

private:
    Fd file_;
};

}  // namespace dtrun
