#pragma once

#include <functional>
#include <thread>

namespace dtrun::output {

/// A thread that no signal is delivered to, so that handlers run where the program expects them,
/// and a write to a closed pipe is an error here whatever SIGPIPE does elsewhere.
std::thread start_writer_thread(std::function<void()> run);

}  // namespace dtrun::output
