#pragma once

#include <cstdint>

// The user's choices, which agents are told.

namespace dtrun {

/// Who serves torch's store.
enum class TorchStore : std::uint8_t {
    agent,  ///< the agent of rank 0's host, to the job's hosts
    rank0,  ///< rank 0 itself
    proxy,  ///< every agent on loopback, for the job's own store
};

/// The protocol by which MPI libraries learn their ranks' places.
enum class MpiMode : std::uint8_t {
    automatic,  ///< pmix and pmi, whichever a rank asks for
    pmix,       ///< Open MPI and others over PMIx
    pmi1,       ///< MPICH, Intel MPI, MVAPICH over PMI-1
    pmi2,       ///< the same libraries, built for PMI-2
    none,       ///< nothing: MPI programs run each alone
};

/// Who waits for whom with --debug-rank.
enum class Debugger : std::uint8_t {
    none,
    automatic,  ///< debugpy for Python, gdb for all others
    gdb,        ///< by gdbserver
    debugpy,
};

}  // namespace dtrun
