#include "base/loop/run_to_exit.h"

#include <exception>
#include <utility>

namespace dtrun {

int run_to_exit(asio::io_context& io, asio::awaitable<int> task, int otherwise) {
    int status = otherwise;
    asio::co_spawn(io, std::move(task), [&io, &status](std::exception_ptr error, int code) {
        if (error) std::rethrow_exception(error);
        status = code;
        io.stop();
    });
    io.run();
    return status;
}

}  // namespace dtrun
