#pragma once

#include "worker/client/connect/outcome.h"

#include <memory>
#include <string>
#include <string_view>

namespace dtrun::embedded {

/// MUNGE, by which processes on the hosts of a cluster prove to each other whose they are
/// (munge(3), https://github.com/dun/munge). Its library is loaded when it is wanted; its daemon,
/// munged, runs on every host and shares one key with the others.
class Munge {
public:
    /// \param socket  munged's; empty: what the library has been built with
    /// Failures: no_launcher (no libmunge.so.2 here), closed (munged does not answer)
    static Outcome<Munge> open(const std::string& socket);

    /// A text that is worth nothing to others: only processes of our user can have it opened, on
    /// any host of the cluster. (So can root, where munged was told to allow that.)
    /// Failures: closed (munged)
    Outcome<std::string> encode(std::string_view payload) const;
    /// What is in a text that a process of our user has made. How old it is, and whether it was
    /// opened before, does not matter: who shows it must prove to know what is in it.
    /// Failures: refused (another user's, damaged, or of another cluster), closed (munged)
    Outcome<std::string> decode(const std::string& credential) const;

private:
    struct Library;
    Munge(std::shared_ptr<const Library> library, std::string socket)
        : library_(std::move(library)), socket_(std::move(socket)) {}

    std::shared_ptr<const Library> library_;
    std::string socket_;
};

}  // namespace dtrun::embedded
