#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace dtrun::output {

/// Names the file of a stream (stream_index()) below the directory, in its attempt-th start; empty:
/// it has none. If both streams of a rank have the same name, that file gets both in the order of
/// their arrival. Called on any thread, so it refers to nothing that may change. Which streams have a file,
/// and which share it, is the same in all attempts.
using RankFileName = std::function<std::string(std::size_t stream, int attempt)>;

}  // namespace dtrun::output
