#pragma once

#include "base/result.h"
#include "collectives/backends/oneccl/api.h"

#include <memory>
#include <string>

namespace dtrun::collectives::oneccl {

/// oneCCL, as found in this process or on this host. It is not closed again: it leaves threads
/// behind.
class Library {
public:
    /// Takes what this process has loaded already; then what environments of Python and of oneAPI
    /// have, and what the loader finds.
    /// \param path  a file to take instead of looking for one (DTRUN_ONECCL_LIBRARY), or ""
    /// Errc: not_found (no library, or none of libfabric), invalid_input (one that is too old)
    static Result<std::shared_ptr<const Library>> open(const std::string& path);

    Functions call;
    Attributes attributes;
    std::string file;
    std::string libfabric;  ///< its file; "" if oneCCL is to use MPI

    /// "oneCCL 2021.16.2"
    std::string name() const;
};

}  // namespace dtrun::collectives::oneccl
